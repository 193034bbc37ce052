// Arrow keys walk through a map of heads; what is under the focus or the pointer is written below it.
for (const grid of document.querySelectorAll("table.heads")) {
  const rows = [...grid.tBodies[0].rows].map((row) => [...row.querySelectorAll("button.head")]);
  const cellText = grid.closest(".scroll").nextElementSibling;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  rows.flat().forEach((cell, i) => { cell.tabIndex = i ? -1 : 0; });
  rows.forEach((row, i) => row.forEach((cell, j) => {
    const showCell = () => { cellText.textContent = cell.getAttribute("aria-label"); };
    cell.addEventListener("mouseenter", showCell);
    cell.addEventListener("focus", showCell);
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
