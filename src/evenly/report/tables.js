// Sorts and filters tables that have a row for every method or client. Without it they are complete, in the order of the experiment.
(() => {
  "use strict";
  document.documentElement.dataset.scripted = "";
  const methods = [...document.querySelectorAll("table[data-methods]")];
  const clients = [...document.querySelectorAll("table[data-clients]")];

  const number = (text) => Number.parseFloat(text.replace("−", "-").replaceAll(",", "").replace(/^[<\s]+/, "")); // "< 0.0001" too
  function key(row, column) {
    const cell = row.cells[column];
    if (column === 0) return cell.textContent;
    const found = number(cell.dataset.sort ?? cell.textContent);
    return Number.isNaN(found) ? null : found;
  }
  function compare(a, b, sign) {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null); // what has no value comes last, either way
    return sign * (typeof a.key === "string" ? a.key.localeCompare(b.key, undefined, { numeric: true }) : a.key - b.key);
  }
  function sort(table, head) {
    const column = [...head.parentNode.children].indexOf(head);
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, i) => ({ row, i, key: key(row, column) }));
    rows.sort((a, b) => compare(a, b, falling ? -1 : 1) || a.i - b.i);
    body.append(...rows.map(({ row }) => row));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.sort");
    if (button) sort(button.closest("table"), button.closest("th"));
  });
  for (const table of [...methods, ...clients]) {
    if (table.tBodies[0].rows.length < 3) continue;
    for (const head of table.querySelectorAll("thead th:not(.words):not(:has(button))")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(head.firstChild);
      head.prepend(button);
    }
  }

  // Every word must occur in a row's name; a word with a minus must not.
  function fits(name, words) {
    return words.every((word) => (word.length > 1 && word[0] === "-" ? !name.includes(word.slice(1)) : name.includes(word)));
  }
  // Filters the rows of these tables by their names; `after` is told which ones are kept.
  function filter(id, tables, what, after) {
    const search = document.getElementById(id);
    const status = document.getElementById(`${id}-status`);
    search?.addEventListener("input", () => {
      const words = search.value.toUpperCase().split(/\s+/).filter(Boolean);
      const keeps = (name) => fits(name.toUpperCase(), words);
      const counts = [0, 0];
      for (const table of tables) {
        const rows = [...table.tBodies[0].rows];
        for (const row of rows) row.hidden = !keeps(row.cells[0].textContent);
        if (rows.length > counts[1]) counts.splice(0, 2, rows.filter((row) => !row.hidden).length, rows.length);
      }
      if (status) status.textContent = words.length ? `${counts[0]} of ${counts[1]} ${what}` : "";
      after?.(keeps);
    });
  }
  const tell = (keeps) => dispatchEvent(new CustomEvent("methods", { detail: keeps }));
  filter("filter-methods", methods, "methods", tell);
  filter("filter-clients", clients, "clients");
})();
