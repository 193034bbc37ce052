// Every figure has its picture already; where its data are here too, it becomes one to point at.
for (const figure of document.querySelectorAll("figure[data-spec]")) {
  const spec = JSON.parse(document.getElementById(figure.dataset.spec).textContent);
  const picture = figure.querySelector("img");
  const place = document.createElement("div");
  place.className = "drawn";
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", picture.alt);
  place.tabIndex = 0;  // where it is wider than the window, it is scrolled by keys
  const inner = place.appendChild(document.createElement("div"));
  vegaEmbed(inner, spec, { renderer: "svg", actions: false, tooltip: { theme: "dark" } })
    .then(() => picture.parentElement.replaceWith(place))
    .catch(() => {});
}
