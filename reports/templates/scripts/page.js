// What JavaScript adds to a page that works without it: sortable and searchable tables, light or dark colours.
const make = (name, fields = {}) => Object.assign(document.createElement(name), fields);

function whenSeen(elements, act) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      seen.unobserve(entry.target);
      act(entry.target);
    }
  }, { rootMargin: "200px" });
  elements.forEach((element) => seen.observe(element));
}

const [LONG, MOST] = [12, 200]; // rows: longer tables get a search field; at most this many rows are shown at first
const whole = []; // for print: shows all rows of a table
const text = (row, column) => row.cells[column]?.textContent.trim() ?? "";
const number = (word) => (/^[-+−×\d.]/.test(word) ? parseFloat(word.replace("−", "-").replace(/^[×+\s]+/, "").replaceAll(/[,\s]/g, "")) : NaN);

// Numbers by size, words alphabetically; anything that is not a number (a dash, an outcome) comes last in either direction.
function compare(a, b, down) {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  const order = Number.isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  return down ? -order : order;
}

function sortable(table, show) {
  const body = table.tBodies[0];
  if (body.rows.length < 2 || table.querySelector("td[colspan], td[rowspan]")) return;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = make("button", { type: "button", className: "sort" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [text(row, column), row]);
      body.append(...rows.sort(([a], [b]) => compare(a, b, down)).map(([, row]) => row));
      show();
    });
  });
}

// A long table shows the rows that match the search; a very long one shows only the first. The page says how many there are.
function searchable(table) {
  const body = table.tBodies[0];
  const total = body.rows.length;
  if (total <= LONG) return () => {};
  const label = make("label", { className: "search", textContent: "Search these rows " });
  const field = make("input", { type: "search" });
  const count = make("output");
  const all = make("button", { type: "button", textContent: `Show all ${total}`, hidden: true });
  const words = new Map(); // read on first use
  const said = (row) => words.get(row) ?? words.set(row, row.textContent.toLowerCase()).get(row);
  let most = MOST;
  function show() {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of body.rows) {
      const meant = !wanted.length || wanted.every((word) => said(row).includes(word));
      found += meant;
      row.hidden = !meant || found > most;
    }
    const shown = Math.min(found, most);
    count.value = shown < total ? ` ${shown} of ${total} rows${found > shown ? `, ${found} found` : ""} ` : "";
    all.hidden = found <= shown;
  }
  const open = () => { most = Infinity; show(); };
  field.addEventListener("input", show);
  all.addEventListener("click", open);
  whole.push(open);
  label.append(field, count);
  table.parentNode.before(label, all);
  show();
  return show;
}

function usable(table) {
  if (table.tHead) sortable(table, table.closest("figure") ? () => {} : searchable(table));
}

// A large table is text until it is asked for.
function unpack(around) {
  for (const held of around.querySelectorAll("noscript.packed")) {
    const content = make("template", { innerHTML: held.textContent }).content;
    const tables = [...content.querySelectorAll("table")];
    held.replaceWith(content);
    tables.forEach(usable);
  }
}

function unpackable() {
  for (const held of document.querySelectorAll("noscript.packed")) {
    const fold = held.closest("details");
    fold.addEventListener("toggle", () => { if (fold.open) unpack(fold); });
  }
}

function colours() {
  const names = { "": "system", light: "light", dark: "dark" };
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

// Under each chart its files, a link to it and, on a website, the line that shows it in another page.
function chartFiles() {
  const held = document.getElementById("chart-files");
  const bytes = () => Uint8Array.from(atob(JSON.parse(held.textContent).packed), (letter) => letter.charCodeAt(0));
  const unpacked = () => new Response(new Blob([bytes()]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const save = (name, blob) => {
    const link = make("a", { download: name, href: URL.createObjectURL(blob) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const image = (svg) => new Blob([svg], { type: "image/svg+xml" });
  async function png(svg) {
    const picture = new Image();
    picture.src = URL.createObjectURL(image(svg));
    await picture.decode();
    const canvas = make("canvas", { width: 2 * picture.naturalWidth, height: 2 * picture.naturalHeight });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(picture.src);
    return new Promise((done) => canvas.toBlob(done));
  }
  for (const tools of held ? document.querySelectorAll(".tools") : []) {
    const id = tools.dataset.chart;
    const address = (tail) => new URL(tail, location.href.split("#")[0]).href;
    const add = (text, title, act) => {
      const button = make("button", { type: "button", textContent: text, title });
      button.addEventListener("click", act);
      tools.append(button);
    };
    const copy = async (button, text) => {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    };
    const file = async () => JSON.parse(await unpacked())[id];
    add("SVG", "save this chart as SVG", async () => save(`${id}.svg`, image((await file()).svg)));
    add("PNG", "save this chart as PNG", async () => save(`${id}.png`, await png((await file()).svg)));
    add("CSV", "save the figures of this chart", async () => save(`${id}.csv`, new Blob([(await file()).csv], { type: "text/csv" })));
    add("link", "copy a link to this chart", (event) => copy(event.target, address(`#${id}`)));
    if (document.body.dataset.charts) {
      const shown = `<iframe src="${address(`charts/${id}.html`)}" width="100%" height="480" style="border:0" loading="lazy"></iframe>`;
      add("embed", "copy the HTML that shows this chart in another page", (event) => copy(event.target, shown));
    }
  }
}

// Explorers are drawn when they are seen, which moves what is below them: the target stays in view until the reader moves.
let hold = null;
function keepInView(target) {
  hold?.disconnect();
  target.scrollIntoView();
  hold = new ResizeObserver(() => target.scrollIntoView());
  hold.observe(document.body);
  for (const moved of ["wheel", "touchstart", "pointerdown", "keydown"]) window.addEventListener(moved, () => hold.disconnect(), { once: true, passive: true });
}

// Folds are open in the page, for readers without scripts; a link into one opens it, and one to a chart that stands in another's
// place chooses it. What is open is printed.
function foldable() {
  const folds = [...document.querySelectorAll("details.fold")];
  const reveal = () => {
    const [name, view] = location.hash.slice(1).split(":"); // a section, or an explorer whose view follows
    if (view !== undefined) begin();
    const target = document.getElementById(view === undefined ? name : `explore-${name}`);
    const fold = target?.querySelector("details.fold") ?? target?.closest("details.fold");
    if (target?.matches(".choice")) {
      const place = [...target.parentNode.querySelectorAll(".choice")].indexOf(target);
      target.parentNode.querySelectorAll(".tabs input")[place].checked = true;
      keepInView(target.parentNode);
    }
    if (!fold) return;
    unpack(fold);
    fold.open = true;
    keepInView(target);
  };
  for (const fold of folds) fold.open = false;
  for (const fold of folds) fold.classList.add("ready");
  window.addEventListener("beforeprint", () => whole.forEach((show) => show()));
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => { if (event.target.closest("a[href^='#']")?.hash === location.hash) reveal(); });
  reveal();
}
