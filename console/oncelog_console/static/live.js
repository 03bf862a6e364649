// Asks for this page again and again, and puts in what has changed: elements with data-live, known by their ids.
// What is open stays open, what has the focus keeps it, and scrolled tables stay where they are.

const REMEMBERED = "oncelog-console-paused";
const MAX_PAUSE = 30_000;

export function live() {
  const main = document.getElementById("main");
  const button = document.getElementById("live");
  if (!button) return; // A page outside of a cluster.
  const every = Number(main.dataset.refresh);
  if (!every) return;
  let paused = sessionStorage.getItem(REMEMBERED) === "yes";
  let failures = 0;
  let timer = 0;
  let asking = false;

  const show = (lost) => {
    button.hidden = false;
    button.setAttribute("aria-pressed", String(!paused));
    button.classList.toggle("lost", lost && !paused);
    button.querySelector("span").textContent = paused ? "Paused" : lost ? "No answer" : "Live";
  };
  const again = () => {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(ask, Math.min(MAX_PAUSE, every * 2 ** failures));
  };
  const ask = async () => {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!paused) put(fresh, answer.ok);
      failures = answer.ok ? 0 : Math.min(4, failures + 1);
    } catch {
      failures = Math.min(4, failures + 1);
    }
    asking = false;
    show(failures > 0);
    again();
  };
  const put = (fresh, ok) => {
    if (Boolean(fresh.getElementById("trouble")) !== Boolean(document.getElementById("trouble"))) {
      if (ok) location.reload(); // The cluster is there again.
      return;
    }
    for (const now of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(now.id);
      if (next && next.innerHTML !== now.innerHTML) replace(now, next);
    }
  };

  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem(REMEMBERED, paused ? "yes" : "no");
    show(failures > 0);
    if (paused) clearTimeout(timer);
    else ask();
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : paused || ask()));
  show(false);
  again();
}

function replace(now, next) {
  if (now.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
  if (!getSelection().isCollapsed && now.contains(getSelection().anchorNode)) return; // Somebody copies.
  const opened = new Map([...now.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
  const scrolled = new Map([...now.querySelectorAll(".scroll[id]")].map((each) => [each.id, [each.scrollLeft, each.scrollTop]]));
  const focused = path(now, document.activeElement);
  for (const each of next.querySelectorAll("details[id]")) if (opened.has(each.id)) each.open = opened.get(each.id);
  now.replaceChildren(...next.childNodes);
  for (const [id, [left, top]] of scrolled) document.getElementById(id)?.scrollTo(left, top);
  if (focused) now.querySelector(focused)?.focus({ preventScroll: true });
}

// The link that has the focus, by where it leads.
function path(within, element) {
  if (!within.contains(element)) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const href = element.getAttribute("href");
  return href ? `a[href="${CSS.escape(href)}"]` : element.matches("summary") ? `#${CSS.escape(element.parentElement.id)} > summary` : null;
}
