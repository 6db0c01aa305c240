// Render formulas. KaTeX is loaded only by pages that have formulas.
(() => {
  const formulas = document.querySelectorAll(".arithmatex");
  if (formulas.length === 0) return;
  const folder = new URL("vendored/katex/", document.currentScript.src).href;

  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = folder + "katex.min.css";
  document.head.append(style);

  const script = document.createElement("script");
  script.src = folder + "katex.min.js";
  script.addEventListener("load", () => {
    for (const formula of formulas) {
      const text = formula.textContent.trim();
      katex.render(text.slice(2, -2), formula, {
        displayMode: text.startsWith("\\["),
        throwOnError: false,
      });
    }
  });
  document.head.append(script);
})();
