// Arrow keys walk through a map of heads; what is under the focus or the pointer is told below it.
for (const grid of document.querySelectorAll("table.heads")) {
  const rows = [...grid.tBodies[0].rows].map((row) => [...row.querySelectorAll("button.head")]);
  const told = grid.closest(".scroll").nextElementSibling;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  rows.flat().forEach((cell, i) => { cell.tabIndex = i ? -1 : 0; });
  rows.forEach((row, i) => row.forEach((cell, j) => {
    const tell = () => { told.textContent = cell.getAttribute("aria-label"); };
    cell.addEventListener("mouseenter", tell);
    cell.addEventListener("focus", tell);
    cell.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      const next = event.key === "Home" ? row[0] : event.key === "End" ? row.at(-1)
        : step && rows[i + step[0]]?.[j + step[1]];
      if (!next) return;
      event.preventDefault();
      rows.flat().forEach((other) => { other.tabIndex = other === next ? 0 : -1; });
      next.focus();
    });
  }));
}
