// "/" goes to the search, arrows from row to row, Escape out of a field.

const isTyping = (element) => element.matches("input, select, textarea");

export function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = event.target;
    if (!(here instanceof Element)) return;
    if (event.key === "Escape" && isTyping(here)) here.blur();
    else if (event.key === "/" && !isTyping(here)) toSearch(event);
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !isTyping(here)) toRow(event, here);
  });
}

function toSearch(event) {
  const field = document.querySelector("[data-search]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

function toRow(event, here) {
  const table = here.closest("table.links") ?? (here === document.body ? document.querySelector("table.links") : null);
  if (!table) return;
  const links = [...table.querySelectorAll("tbody th a")];
  if (!links.length) return;
  const row = here.closest("tr");
  const at = links.findIndex((link) => link.closest("tr") === row);
  const to = event.key === "ArrowDown" ? at + 1 : at < 0 ? links.length - 1 : at - 1;
  if (to < 0 || to >= links.length) return;
  event.preventDefault();
  links[to].focus();
  links[to].scrollIntoView({ block: "nearest" });
}
