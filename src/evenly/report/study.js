// Hides the lines of a study's tables that are not asked for.
(() => {
  "use strict";
  for (const box of document.querySelectorAll("input[data-whose]")) {
    box.addEventListener("change", () => {
      document.getElementById("methods").classList.toggle(`hide-${box.dataset.whose}`, !box.checked);
    });
  }
})();
