// Sorts and filters the tables of methods. Without it they are complete, in the order of the study.
(() => {
  "use strict";
  const tables = [...document.querySelectorAll("table.methods")];

  function key(row, column) {
    const cell = row.children[column];
    return column === 0 ? cell.textContent : Number.parseFloat(cell.dataset.sort);
  }
  function sort(table, head) {
    const column = [...head.parentNode.children].indexOf(head);
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, i) => ({ row, i, key: key(row, column) }));
    const sign = falling ? -1 : 1;
    rows.sort((a, b) => sign * (typeof a.key === "string" ? a.key.localeCompare(b.key) : a.key - b.key) || a.i - b.i);
    body.append(...rows.map(({ row }) => row));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (button) sort(button.closest("table"), button.closest("th"));
  });

  // Every word must occur in the method's name; a word with a minus must not.
  function fits(name, words) {
    return words.every((word) => (word.length > 1 && word[0] === "-" ? !name.includes(word.slice(1)) : name.includes(word)));
  }
  const search = document.getElementById("filter-methods");
  search?.addEventListener("input", () => {
    const words = search.value.toUpperCase().split(/\s+/).filter(Boolean);
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) row.hidden = !fits(row.cells[0].textContent.toUpperCase(), words);
    }
  });
  for (const box of document.querySelectorAll("input[data-whose]")) {
    box.addEventListener("change", () => {
      document.getElementById("methods").classList.toggle(`hide-${box.dataset.whose}`, !box.checked);
    });
  }
})();
