// What a script adds to a page that is whole without one: charts to be touched, tables to be sorted and searched, light or dark.
(() => {
  "use strict";
  const INK = "#010203"; // stands for the page's text colour in the charts
  const make = (name, fields = {}) => Object.assign(document.createElement(name), fields);

  function draw(figure) {
    const still = figure.querySelector(".still");
    const spec = JSON.parse(figure.querySelector('script[type="application/json"]').textContent.replaceAll(INK, "currentColor"));
    const live = make("div", { className: "live" });
    still.after(live);
    const options = {
      renderer: "svg",
      ast: true, // the page's policy allows no code made of text
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: figure.id,
      i18n: { CLICK_TO_VIEW_ACTIONS: "Save the chart", SVG_ACTION: "Save as SVG", PNG_ACTION: "Save as PNG" },
    };
    window.vegaEmbed(live, spec, options).then(
      () => figure.classList.add("drawn"),
      (error) => { live.remove(); console.error(`${figure.id}: ${error.message}`); },
    );
  }

  function drawWhenSeen() {
    const figures = document.querySelectorAll("figure:has(> script)");
    if (!window.vegaEmbed || !figures.length) return;
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "200px" });
    figures.forEach((figure) => seen.observe(figure));
  }

  const LONG = 12;
  const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
  const number = (word) => (/^[-+×\d.]/.test(word) ? parseFloat(word.replace(/^[×+\s]+/, "").replaceAll(",", "")) : NaN);

  // Numbers by size, words by letters; what is no number (n/a, an outcome) after the numbers, whichever way.
  function compare(a, b, down) {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    const order = Number.isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
    return down ? -order : order;
  }

  function sortable(table) {
    const body = table.tBodies[0];
    if (body.rows.length < 2 || table.querySelector("td[colspan], td[rowspan]")) return;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button", className: "sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...[...body.rows].sort((a, b) => compare(text(a, column), text(b, column), down)));
      });
    });
  }

  function searchable(table) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length <= LONG) return;
    const label = make("label", { className: "search", textContent: "Search these rows " });
    const field = make("input", { type: "search" });
    const count = make("output");
    const words = rows.map((row) => row.textContent.toLowerCase());
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => { row.hidden = !wanted.every((word) => words[i].includes(word)); shown += !row.hidden; });
      count.value = wanted.length ? ` ${shown} of ${rows.length}` : "";
    });
    label.append(field, count);
    table.parentNode.before(label);
  }

  function colours() {
    const names = { "": "as the system", light: "light", dark: "dark" };
    const button = make("button", { type: "button", className: "colours" });
    let mode = "";
    const show = () => {
      mode ? (document.documentElement.dataset.theme = mode) : delete document.documentElement.dataset.theme;
      button.textContent = `Colours: ${names[mode]}`;
    };
    button.addEventListener("click", () => { mode = { "": "dark", dark: "light", light: "" }[mode]; show(); });
    show();
    document.querySelector("nav").append(button);
  }

  function copyable(button) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.held).textContent);
      button.textContent = "Copied";
    });
    button.hidden = false;
  }

  document.querySelectorAll("table:not(.facts)").forEach((table) => {
    if (table.tHead) sortable(table);
    if (table.tHead && !table.closest("figure")) searchable(table);
  });
  document.querySelectorAll("button.copy").forEach(copyable);
  colours();
  drawWhenSeen();
})();
