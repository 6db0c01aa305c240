/* The same two trainings by hand, in float32, on one core: how fast this machine could be.

   `rows` are batches drawn beforehand, [steps, batch] with `n` where there is none; where it is null, every visit shuffles its client's
   training rows itself, as evenly must. Compiled by with_c.py. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t luck = 88172645463325252ull;

static uint32_t below(uint32_t n) {
    luck ^= luck << 13;
    luck ^= luck >> 7;
    luck ^= luck << 17;
    return (uint32_t)(((luck >> 32) * n) >> 32);
}

/* The rows of one visit in the order of its batches. */
static void order(int *out, const int *own, int count, const int *rows, int batch) {
    if (rows) {
        for (int i = 0; i < count; i += batch) memcpy(out + i, rows + i, (count - i < batch ? count - i : batch) * sizeof(int));
        return;
    }
    memcpy(out, own, count * sizeof(int));
    for (int i = count - 1; i > 0; i--) {
        int j = below(i + 1), held = out[i];
        out[i] = out[j];
        out[j] = held;
    }
}

/* Softmax: ten classes are padded to sixteen, two vectors of eight; the bias of the padding is -1e30. */
enum { WIDE = 16, CLASSES = 10, MOST = 32 };
typedef float vec __attribute__((vector_size(32)));
typedef int ints __attribute__((vector_size(32)));

static inline vec load(const float *p) {
    vec v;
    memcpy(&v, p, 32);
    return v;
}

static inline void store(float *p, vec v) { memcpy(p, &v, 32); }

static inline vec exponential(vec x) { /* of x <= 0: a power of two times a polynomial */
    vec t = x * 1.44269504f;
    for (int c = 0; c < 8; c++) t[c] = t[c] < -126.0f ? -126.0f : t[c];
    ints k = __builtin_convertvector(t - 0.5f, ints);
    vec f = (t - __builtin_convertvector(k, vec)) * 0.69314718f;
    vec p = 1 + f * (1 + f * (0.5f + f * (0.16666667f + f * (0.041666667f + f * (0.0083333333f + f * 0.0013888889f)))));
    ints e = (k + 127) << 23;
    vec m;
    memcpy(&m, &e, 32);
    return p * m;
}

/* z [b, 16] = x W + bias, five rows at a time; W [d + 1, 16], the bias last. */
static void logits(const float **x, int b, const float *W, int d, float *z) {
    for (int i = 0; i < b; i += 5) {
        const float *r[5];
        vec lo[5], hi[5];
        for (int k = 0; k < 5; k++) {
            r[k] = x[i + k < b ? i + k : b - 1];
            lo[k] = load(W + d * WIDE);
            hi[k] = load(W + d * WIDE + 8);
        }
        for (int j = 0; j < d; j++) {
            vec u = load(W + j * WIDE), v = load(W + j * WIDE + 8);
            for (int k = 0; k < 5; k++) {
                lo[k] += r[k][j] * u;
                hi[k] += r[k][j] * v;
            }
        }
        for (int k = 0; k < 5 && i + k < b; k++) {
            store(z + (i + k) * WIDE, lo[k]);
            store(z + (i + k) * WIDE + 8, hi[k]);
        }
    }
}

/* Logits to probabilities in place; returns the logarithm of the sum. */
static inline float softmax(float *z) {
    float top = z[0], sum = 0;
    for (int c = 1; c < CLASSES; c++) top = z[c] > top ? z[c] : top;
    vec a = exponential(load(z) - top), b = exponential(load(z + 8) - top), both = a + b;
    for (int c = 0; c < 8; c++) sum += both[c];
    store(z, a / sum);
    store(z + 8, b / sum);
    return top + logf(sum);
}

/* w -= step * x^T z for one batch. */
static void descend(float *w, const float **x, const float *z, int b, int d, float step) {
    for (int j = 0; j < d; j += 4) {
        vec lo[4] = {}, hi[4] = {};
        for (int i = 0; i < b; i++) {
            vec u = load(z + i * WIDE), v = load(z + i * WIDE + 8);
            for (int m = 0; m < 4; m++) {
                lo[m] += x[i][j + m] * u;
                hi[m] += x[i][j + m] * v;
            }
        }
        for (int m = 0; m < 4; m++) {
            store(w + (j + m) * WIDE, load(w + (j + m) * WIDE) - step * lo[m]);
            store(w + (j + m) * WIDE + 8, load(w + (j + m) * WIDE + 8) - step * hi[m]);
        }
    }
    vec lo = {}, hi = {};
    for (int i = 0; i < b; i++) {
        lo += load(z + i * WIDE);
        hi += load(z + i * WIDE + 8);
    }
    store(w + d * WIDE, load(w + d * WIDE) - step * lo);
    store(w + d * WIDE + 8, load(w + d * WIDE + 8) - step * hi);
}

/* q-FedAvg. d is a multiple of 4 and batch at most 32. W [d + 1, 16] is trained in place. */
void fair(const float *X, const int *y, const int *own, const int *offsets, const int *cohort, const int *first, const int *rows, int rounds,
          int width, int d, int batch, float rate, float q, int longest, float *W) {
    int size = (d + 1) * WIDE, *at = malloc(longest * sizeof(int));
    float *w = aligned_alloc(64, size * 4), *sum = malloc(size * 4), z[MOST * WIDE];
    const float *x[MOST];
    for (int visit = 0; visit < rounds * width;) {
        float scale = 0;
        memset(sum, 0, size * 4);
        for (int s = 0; s < width; s++, visit++) {
            int k = cohort[visit], n = offsets[k + 1] - offsets[k];
            const int *mine = own + offsets[k];
            float loss = 0;
            for (int i0 = 0; i0 < n; i0 += batch) {
                int b = n - i0 < batch ? n - i0 : batch;
                for (int i = 0; i < b; i++) x[i] = X + (long)mine[i0 + i] * d;
                logits(x, b, W, d, z);
                for (int i = 0; i < b; i++) {
                    float right = z[i * WIDE + y[mine[i0 + i]]];
                    loss += softmax(z + i * WIDE) - right;
                }
            }
            loss = loss / n + 1e-10f;
            memcpy(w, W, size * 4);
            order(at, mine, n, rows ? rows + (long)first[visit] * batch : 0, batch);
            for (int i0 = 0; i0 < n; i0 += batch) {
                int b = n - i0 < batch ? n - i0 : batch;
                for (int i = 0; i < b; i++) x[i] = X + (long)at[i0 + i] * d;
                logits(x, b, w, d, z);
                for (int i = 0; i < b; i++) {
                    softmax(z + i * WIDE);
                    z[i * WIDE + y[at[i0 + i]]] -= 1;
                }
                descend(w, x, z, b, d, rate / b);
            }
            float square = 0, weight = powf(loss, q);
            for (int p = 0; p < size; p++) {
                float moved = (W[p] - w[p]) / rate;
                square += moved * moved;
                sum[p] += weight * moved;
            }
            scale += q * powf(loss, q - 1) * square + weight / rate;
        }
        for (int p = 0; p < size; p++) W[p] -= sum[p] / scale;
    }
    free(at);
    free(w);
    free(sum);
}

/* FedAvg by size with logistic regression. w0 [d + 1], the bias last, is trained in place. */
void mean(const float *X, const float *y, const int *own, const int *offsets, const int *cohort, const int *first, const int *rows, int rounds,
          int width, int d, int batch, float rate, int longest, float *w0) {
    int bytes = (d + 1) * 4, *at = malloc(longest * sizeof(int));
    float *w = malloc(bytes), *slope = malloc(bytes), *sum = malloc(bytes);
    for (int t = 0; t < rounds; t++) {
        int all = 0;
        for (int s = 0; s < width; s++) all += offsets[cohort[t * width + s] + 1] - offsets[cohort[t * width + s]];
        memset(sum, 0, bytes);
        for (int s = 0; s < width; s++) {
            int visit = t * width + s, k = cohort[visit], n = offsets[k + 1] - offsets[k];
            memcpy(w, w0, bytes);
            order(at, own + offsets[k], n, rows ? rows + (long)first[visit] * batch : 0, batch);
            for (int i0 = 0; i0 < n; i0 += batch) {
                int b = n - i0 < batch ? n - i0 : batch;
                memset(slope, 0, bytes);
                for (int i = 0; i < b; i++) {
                    const float *x = X + (long)at[i0 + i] * d;
                    if (i0 + i + 8 < n) /* rows lie anywhere: ask for them early */
                        for (int c = 0; c < d; c += 16) __builtin_prefetch(X + (long)at[i0 + i + 8] * d + c);
                    float z = w[d];
                    for (int j = 0; j < d; j++) z += x[j] * w[j];
                    float g = 1 / (1 + expf(-z)) - y[at[i0 + i]];
                    for (int j = 0; j < d; j++) slope[j] += g * x[j];
                    slope[d] += g;
                }
                for (int j = 0; j <= d; j++) w[j] -= rate / b * slope[j];
            }
            for (int j = 0; j <= d; j++) sum[j] += (float)n / all * w[j];
        }
        memcpy(w0, sum, bytes);
    }
    free(at);
    free(w);
    free(slope);
    free(sum);
}
