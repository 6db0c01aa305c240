// Asks how the experiment stands and shows it. Everything that comes from the experiment is put in as text, never as markup.
(() => {
  "use strict";
  const { spec, config, shapes } = JSON.parse(document.getElementById("figure").textContent);
  const MOST_DRAWN = 8; // as many colours and shapes as can be told apart
  const SHAPED = 8; // evaluations of a line that are marked with the method's shape
  const place = (id) => document.getElementById(id);
  const make = (name, text = "", attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  };
  const number = (value) => value.toLocaleString("en");
  let asked = { part: "", metric: "" };
  let seen = ""; // the version of the lines that are here
  let lines = [];
  let drawn = null; // labels, in the order of their colours; null: not chosen yet
  let chart = null; // { key, view }

  // One question at a time. A click asks at once, or as soon as the answer on its way is here.
  let [busy, again, timer] = [false, false, null];
  async function ask() {
    clearTimeout(timer);
    again = busy;
    if (busy) return;
    busy = true;
    const pause = await look();
    busy = false;
    timer = setTimeout(ask, again ? 0 : pause);
  }

  async function look() {
    let state;
    try {
      const answer = await fetch(`state?${new URLSearchParams({ ...asked, seen })}`, { cache: "no-store" });
      state = await answer.json();
    } catch {
      document.documentElement.dataset.status = "alone";
      say("`evenly watch` has ended, so this page is told nothing more. What it was told last stays below.");
      return 4000;
    }
    await show(state);
    return state.status === "running" ? 1000 : 2000;
  }

  async function show(state) {
    document.documentElement.dataset.status = state.status;
    say(state.sentence);
    place("name").textContent = state.title;
    place("kicker").textContent = ["evenly watch", state.data, state.folder].filter(Boolean).join(" · ");
    document.title = `${share(state.progress)}${state.title}`;
    place("report").hidden = !(state.status === "finished" && state.report);
    showProgress(state);
    place("details").hidden = !state.methods;
    place("runs").hidden = !state.methods;
    offer("part", Object.fromEntries(Object.entries(state.parts).map(([name, stage]) => [name, `${name} (${stage})`])), state.part);
    if (!state.methods) return;
    offer("metric", state.metrics, state.metric);
    showRuns(state.runs);
    drawn ??= state.methods.slice(0, MOST_DRAWN).map((method) => method.label);
    const known = new Set(state.methods.map((method) => method.label));
    drawn = drawn.filter((label) => known.has(label));
    if (state.lines) lines = state.lines;
    seen = state.version;
    showTable(state);
    await draw(state);
  }

  function say(sentence) {
    if (place("status").dataset.said === sentence) return; // a screen reader speaks what changes
    place("status").dataset.said = sentence;
    place("status").replaceChildren(...sentence.split("`").map((text, i) => (i % 2 ? make("code", text) : text)));
  }

  const share = ({ done, total }) => (total ? `${Math.floor((100 * done) / total)} % · ` : "");

  function showProgress({ progress, status, now }) {
    const { done, total, left, began, last } = progress;
    place("bar").hidden = !total;
    if (total) place("bar").value = done / total;
    const parts = [];
    if (total) parts.push(`${number(done)} of ${number(total)} rounds (${Math.floor((100 * done) / total)} %)`);
    const [until, word] = status === "running" ? [now, "so far"] : [last, "in all"];
    if (began) parts.push(`${span(until - began)} ${word}`);
    if (status === "running" && left !== null) parts.push(`about ${span(Math.max(0, left - (now - last)))} left`);
    place("far").textContent = parts.join(" · ");
  }

  function span(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    if (hours) return `${number(hours)} h ${minutes} min`;
    return minutes > 9 ? `${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  function offer(name, choices, chosen) {
    const select = place(name);
    place(`choose-${name}`).hidden = Object.keys(choices).length < 2;
    const now = JSON.stringify(choices);
    if (select.dataset.choices !== now) {
      select.replaceChildren(...Object.entries(choices).map(([value, text]) => make("option", text, { value })));
      select.dataset.choices = now;
    }
    if (document.activeElement !== select || !asked[name]) select.value = chosen;
  }

  function showRuns(runs) {
    const shown = Object.entries(runs).filter(([stage, count]) => count || ["finished", "running", "waiting"].includes(stage));
    const now = JSON.stringify(shown);
    if (place("runs").dataset.shown === now) return;
    place("runs").dataset.shown = now;
    place("runs").replaceChildren(
      ...shown.map(([stage, count]) => {
        const one = make("div", "", { "data-stage": stage });
        one.append(make("dt", `runs ${stage}`), make("dd", number(count)));
        return one;
      }),
    );
  }

  function showTable(state) {
    const now = JSON.stringify([state.methods, state.columns, drawn]);
    const body = place("rows");
    if (body.dataset.shown === now) return;
    body.dataset.shown = now;
    const focused = body.contains(document.activeElement) ? document.activeElement.value : null;
    place("caption").textContent =
      "Means over the seeds that have come as far as the rounds in the second column" +
      (state.methods.length > MOST_DRAWN ? `; at most ${MOST_DRAWN} methods are drawn at a time.` : ".");
    const heads = [make("th", "method", { scope: "col" }), make("th", "rounds", { scope: "col" })];
    heads.push(...Object.values(state.columns).map((title) => heading(title)), make("th", "seeds", { scope: "col", class: "words" }));
    const top = make("tr");
    top.append(...heads);
    place("head").replaceChildren(top);
    body.replaceChildren(...state.methods.map((method) => row(method, state.columns)));
    if (focused !== null) body.querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  }

  function heading(title) {
    const at = title.lastIndexOf(", ");
    const made = make("th", title.slice(0, at), { scope: "col" });
    made.append(make("small", title.slice(at + 2)));
    return made;
  }

  function row(method, columns) {
    const made = make("tr");
    const name = make("th", "", { scope: "row" });
    const label = make("label");
    const box = make("input", "", { type: "checkbox", value: method.label, "aria-label": `draw ${method.label}` });
    box.checked = drawn.includes(method.label);
    const words = make("span");
    words.append(...method.label.split(/(?<=[+(,])/).flatMap((text) => [text, make("wbr")]));
    label.append(box, swatch(method.label), words);
    name.append(label);
    made.append(name, make("td", number(method.round), { "data-column": "rounds" }));
    for (const [metric, title] of Object.entries(columns)) {
      const value = method.values[metric];
      const cell = make("td", value ? value.text : "–", { "data-column": title });
      if (value && value.seeds > 1) cell.title = `${value.span} over ${value.seeds} seeds`;
      made.append(cell);
    }
    const stages = Object.entries(method.stages).map(([stage, count]) => `${count} ${stage}`);
    made.append(make("td", stages.join(", "), { "data-column": "seeds", class: "words" }));
    return made;
  }

  const PATHS = {
    circle: "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
    square: "M-4.5,-4.5h9v9h-9z",
    "triangle-up": "M0,-5.5L5.5,4.5H-5.5z",
    diamond: "M0,-6L5,0L0,6L-5,0z",
    cross: "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    "triangle-down": "M0,5.5L5.5,-4.5H-5.5z",
    "triangle-right": "M5.5,0L-4.5,5.5V-5.5z",
    "triangle-left": "M-5.5,0L4.5,5.5V-5.5z",
  };

  function swatch(label) {
    const at = drawn.indexOf(label);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    Object.entries({ viewBox: "-7 -7 14 14", width: 14, height: 14, "aria-hidden": "true" }).forEach(([k, v]) => svg.setAttribute(k, v));
    if (at >= 0) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", PATHS[shapes[at]]);
      path.style.fill = `var(--series-${at + 1})`;
      svg.append(path);
    }
    return svg;
  }

  async function draw(state) {
    const rows = drawn.flatMap((label) => shaped(lines.filter((line) => line.method === label)));
    place("about").textContent = state.metrics[state.metric]
      ? `${state.metrics[state.metric]}: mean over seeds, and a band from the lowest to the highest. A line is drawn once its method was evaluated.`
      : "Nothing has been evaluated yet.";
    const key = JSON.stringify([drawn, state.metric]);
    if (chart && chart.key === key) {
      if (chart.rows !== state.version) await chart.view.data("lines", rows).resize().runAsync();
    } else if (rows.length) {
      chart?.finalize();
      const own = structuredClone(spec);
      own.encoding.color.scale = { domain: drawn };
      own.layer[2].encoding.shape.scale = { domain: drawn };
      own.layer.forEach((layer) => (layer.encoding.y.axis.title = state.metrics[state.metric]));
      own.data.values = rows;
      const { view, finalize } = await vegaEmbed("#chart", own, { renderer: "svg", actions: false, config });
      chart = { key, view, finalize };
    }
    if (chart) chart.rows = state.version;
    document.documentElement.dataset.drawn = rows.length;
  }

  function shaped(line) {
    const step = Math.max(1, Math.ceil(line.length / SHAPED));
    return line.map((one, i) => ({ ...one, shaped: i % step === 0 || i === line.length - 1 }));
  }

  place("rows").addEventListener("change", ({ target }) => {
    drawn = target.checked ? [...drawn, target.value] : drawn.filter((label) => label !== target.value);
    if (drawn.length > MOST_DRAWN) drawn = drawn.slice(1);
    ask();
  });
  for (const name of ["part", "metric"]) {
    place(name).addEventListener("change", ({ target }) => {
      asked = { ...asked, [name]: target.value };
      seen = "";
      if (name === "part") drawn = null;
      ask();
    });
  }
  ask();
})();
