r"""Formulas of methods and metrics for the documentation, with LaTeX between dollar signs, and
addresses of papers.

The package itself prints formulas as plain text (`Method.formula`, `Metric.formula`). A method or
metric without an entry here is shown with its plain formula.

GitHub removes backslashes before punctuation, and bars would end a table cell. So formulas use
`\lvert` and `\lVert`, and no `\,` or `\;`.
"""

METHODS = {
    "fedavg": r"$w^+ = \sum_k a_k w_k$ with $a_k \propto n_k$ or $a_k \propto 1$",
    "fedsgd": r"$w^+ = w - \eta \sum_k a_k \nabla F_k(w)$",
    "fedprox": (
        r"client $k$ minimises $F_k(v) + \frac{\mu}{2} \lVert v - w \rVert^2$;"
        r" $w^+ = \sum_k a_k w_k$"
    ),
    "q-fedavg": (
        r"$w^+ = w + \frac{\sum_k a_k v_k}{1 + q L \sum_k a_k \lVert v_k \rVert^2 / F_k}$"
        r" with $a_k \propto F_k^q$"
    ),
    "q-fedsgd": (
        r"$w^+ = w - \frac{\sum_k F_k^q \nabla F_k}"
        r"{\sum_k (q F_k^{q-1} \lVert \nabla F_k \rVert^2 + L F_k^q)}$"
    ),
    "multi-q": "one q-FedAvg model for each $q$; clients choose by validation accuracy",
    "afl": r"$\lambda^+ = \Pi(\lambda + \gamma F)$ and $w^+ = \sum_k \lambda_k w_k$",
    "term": r"$w^+ = \sum_k a_k w_k$ with $a_k \propto n_k e^{\alpha F_k}$",
    "propfair": (
        r"clients minimise $-\log(M - \ell)$ of each batch; $w^+ = \sum_k a_k w_k$"
        r" with $a_k \propto n_k$"
    ),
    "p-fedavg": r"$w^+ = \sum_i p_i w_{(i)}$, clients sorted by loss, $p$ fixed",
    "fairfed": (
        r"$\omega_k \leftarrow \max(0, \omega_k - \beta (\Delta_k - \bar\Delta))$;"
        r" $w^+ = \sum_k a_k w_k$ with $a_k \propto \omega_k$"
    ),
    "fedcvg": r"$w^+ = \sum_k a_k w_k$ with $a_k \propto n_k e^{\alpha u_k}$",
    "fedcvg-ratio": (
        r"$\omega_k \leftarrow m \omega_k + (1 - m) z_k$ with $z_k \propto n_k s_k$;"
        r" $w^+ = \sum_k a_k w_k$ with $a_k \propto \omega_k$"
    ),
    "fedfb": (
        r"row weights $o_0 \leftarrow o_0 - \frac{\alpha}{\sqrt t} f \frac{n}{m_0}$ and"
        r" $o_1 \leftarrow o_1 + \frac{\alpha}{\sqrt t} f \frac{n}{m_1}$;"
        r" $w^+ = \sum_k a_k w_k$ with $a_k \propto c_k$"
    ),
    "ditto": (
        r"personal model $u_k \leftarrow u_k - \eta (\nabla F_k(u_k) + \lambda (u_k - w))$;"
        r" $w^+ = \sum_k a_k w_k$"
    ),
    "fedmgda": (
        r"$w^+ = w - \eta \sum_k \lambda_k \frac{g_k}{\lVert g_k \rVert}$, where $\lambda$"
        r" minimises the norm of the sum with $\lvert \lambda_k - \lambda_k^0 \rvert \le"
        r" \varepsilon$"
    ),
    "local": r"$w_k \leftarrow w_k - \eta \nabla F_k(w_k)$; nothing is shared",
    "ifca": (
        r"$c_k = \arg\min_c F_k(w_c)$; $w_c^+ = \sum_k a_k w_k$ over the clients with $c_k = c$"
    ),
    "frl": r"$p^+ = \mathrm{rank}(\sum_k p_k)$",
    "e2fl": (
        r"$p_g = \mathrm{rank}(\sum_{k \in g} p_k)$ for each group $g$;"
        r" $p^+ = \mathrm{rank}(\sum_g p_g)$"
    ),
}

PAPERS = {
    "fedavg": "https://arxiv.org/abs/1602.05629",
    "fedsgd": "https://arxiv.org/abs/1602.05629",
    "fedprox": "https://arxiv.org/abs/1812.06127",
    "q-fedavg": "https://arxiv.org/abs/1905.10497",
    "q-fedsgd": "https://arxiv.org/abs/1905.10497",
    "multi-q": "https://arxiv.org/abs/1905.10497",
    "afl": "https://arxiv.org/abs/1902.00146",
    "term": "https://arxiv.org/abs/2007.01162",
    "propfair": "https://arxiv.org/abs/2202.01666",
    "fairfed": "https://arxiv.org/abs/2110.00857",
    "fedfb": "https://arxiv.org/abs/2110.15545",
    "ditto": "https://arxiv.org/abs/2012.04221",
    "fedmgda": "https://arxiv.org/abs/2006.11489",
    "local": "https://arxiv.org/abs/2205.10454",
    "ifca": "https://arxiv.org/abs/2006.04088",
    "frl": "https://arxiv.org/abs/2110.04350",
    "e2fl": "https://arxiv.org/abs/2205.10454",
}

TPR, FPR = (rf"\mathrm{{{name}}}_0 - \mathrm{{{name}}}_1" for name in ("TPR", "FPR"))
FAS = (
    r"$\mathrm{acc} \cdot (1 - \frac{1}{4} (\lvert \mathrm{EOD} \rvert + \lvert \mathrm{SPD}"
    r" \rvert + \lvert \mathrm{AOD} \rvert + "
)
METRICS = {
    "average": r"$\sum_k n_k a_k / \sum_k n_k$",
    "average_devices": r"$\bar a = \frac{1}{m} \sum_k a_k$",
    "worst10": r"mean of the lowest $\max(1, \lfloor m/10 \rfloor)$ accuracies",
    "best10": r"mean of the highest $\max(1, \lfloor m/10 \rfloor)$ accuracies",
    "variance": r"$\frac{1}{m} \sum_k (a_k - \bar a)^2$",
    "variance_noise": r"$\frac{m-1}{m}$ times the mean of $\frac{a_k (1 - a_k)}{n_k - 1}$",
    "std": r"$\sqrt{\mathrm{variance}}$",
    "angle": r"$\arctan(\mathrm{std} / \bar a)$",
    "kl": r"$\sum_k p_k \ln(m p_k)$ with $p_k = a_k / \sum_j a_j$",
    "entropy": r"$\ln m - \mathrm{KL}$",
    "gini": r"$1 - \sum_i (2i - 1) a_{(i)} / (m^2 \bar a)$",
    "jain": r"$(\sum_k a_k)^2 / (m \sum_k a_k^2)$",
    "min": r"$\min_k a_k$",
    "max": r"$\max_k a_k$",
    "accuracy": "correct predictions / rows",
    "spd": r"$P_0(\hat y = 1) - P_1(\hat y = 1)$",
    "eod": f"${TPR}$",
    "aod": rf"$\frac{{1}}{{2}} [({FPR}) + ({TPR})]$",
    "acc_diff": r"$\mathrm{acc}_0 - \mathrm{acc}_1$",
    "f1_diff": r"$\mathrm{F1}_0 - \mathrm{F1}_1$",
    "odds_diff": rf"$\max(\lvert {TPR} \rvert, \lvert {FPR} \rvert)$",
    "spd_range": r"$\max_g P_g(\hat y = 1) - \min_g P_g(\hat y = 1)$",
    "eod_range": r"$\max_g \mathrm{TPR}_g - \min_g \mathrm{TPR}_g$",
    "acc_range": r"$\max_g \mathrm{acc}_g - \min_g \mathrm{acc}_g$",
    "worst_accuracy": r"$\min_g \mathrm{acc}_g$",
    "worst_tpr": r"$\min_g \mathrm{TPR}_g$",
    "worst_selection": r"$\min_g P_g(\hat y = 1)$",
    "fas_abs": FAS + r"\lvert \mathrm{acc}_0 - \mathrm{acc}_1 \rvert))$",
    "fas_thesis": FAS + r"\mathrm{acc}_0 - \mathrm{acc}_1))$",
    "group_average": r"mean of the $\bar a_g$",
    "group_worst10": r"mean of the lowest tenth of the $\bar a_g$",
    "group_best10": r"mean of the highest tenth of the $\bar a_g$",
    "group_variance": r"variance of the $\bar a_g$",
    "group_std": r"standard deviation of the $\bar a_g$",
}
