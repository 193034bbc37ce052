// All items of a test, as a table that is built when it is opened, with a search and sorted columns.
const PAGE_ROWS = 100;
for (const place of document.querySelectorAll("div.all-items")) {
  const details = place.appendChild(document.createElement("details"));
  const summary = details.appendChild(document.createElement("summary"));
  summary.textContent = place.dataset.title;
  details.addEventListener("toggle", () => buildTable(place, details), { once: true });
}
function buildTable(place, details) {
  const items = JSON.parse(document.getElementById(place.dataset.items).textContent);
  const add = (parent, tag, text = "") => {
    const element = parent.appendChild(document.createElement(tag));
    element.textContent = text;
    return element;
  };
  const bar = add(details, "p");
  const label = add(bar, "label", "Search ");
  const input = add(label, "input");
  input.type = "search";
  const count = add(bar, "span");
  count.className = "count";
  count.setAttribute("role", "status");
  const scroll = add(details, "div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", place.dataset.title);
  const table = add(scroll, "table");
  table.className = "items all";
  const head = add(add(table, "thead"), "tr");
  const body = add(table, "tbody");
  const more = add(details, "button", "Show more");
  more.type = "button";
  more.className = "plain";
  const text = (item) => item[2].map((query, i) => [query, item[3][i]].filter(Boolean).join(" → ")).join("\n");
  const columns = [["item", (item) => item[0]], ["group", (item) => item[1]],
    ["text → responses", text], ["value", (item) => item[4]]];
  let order = [-1, 1], shown = PAGE_ROWS, chosen = items;
  const headers = columns.map(([name, key], i) => {
    const cell = add(head, "th");
    cell.scope = "col";
    const button = add(cell, "button", name);
    button.type = "button";
    button.className = "plain sort";
    button.addEventListener("click", () => {
      order = [i, order[0] === i ? -order[1] : 1];
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", order[1] > 0 ? "ascending" : "descending");
      draw();
    });
    return cell;
  });
  function draw() {
    const words = input.value.toLowerCase();
    chosen = items.filter((item) => !words || `${item[0]} ${item[1]} ${text(item)}`.toLowerCase().includes(words));
    if (order[0] >= 0) {
      const key = columns[order[0]][1];
      chosen.sort((a, b) => (key(a) < key(b) ? -order[1] : key(a) > key(b) ? order[1] : 0));
    }
    body.replaceChildren();
    for (const item of chosen.slice(0, shown)) {
      const row = add(body, "tr");
      columns.forEach(([, key], i) => {
        const cell = add(row, i ? "td" : "th");
        if (!i) cell.scope = "row";
        const content = key(item);
        add(cell, "bdi", typeof content === "number" ? Number(content.toPrecision(3)) : content);
      });
    }
    more.hidden = chosen.length <= shown;
    count.textContent = `${chosen.length} of ${items.length} items`;
  }
  input.addEventListener("input", () => { shown = PAGE_ROWS; draw(); });
  more.addEventListener("click", () => { shown += PAGE_ROWS; draw(); });
  draw();
}
