// Follows a log: rows are made of text, never of markup, the newest on top; there are so many at most.

const MOST_ROWS = 300;

export function tail() {
  const button = document.getElementById("follow");
  if (!button) return;
  const rows = document.getElementById("records");
  const state = document.getElementById("tail-state");
  let source = null;
  let count = 0;

  const stop = (why) => {
    source?.close();
    source = null;
    button.setAttribute("aria-pressed", "false");
    button.textContent = "Follow";
    state.textContent = why;
  };
  const start = () => {
    count = 0;
    rows.replaceChildren();
    document.getElementById("records-pages").hidden = true;
    button.setAttribute("aria-pressed", "true");
    button.textContent = "Stop";
    state.textContent = "Connecting…";
    source = new EventSource(button.dataset.tail);
    source.addEventListener("ready", () => (state.textContent = "Waiting for records. The newest are on top."));
    source.addEventListener("records", (event) => {
      const part = JSON.parse(event.data);
      if (!part.records.length) return;
      count += part.records.length + part.left_out;
      document.getElementById("records-scroll").hidden = false;
      document.getElementById("records-none").hidden = true;
      if (part.left_out) rows.prepend(note(`${part.left_out} more came at the same time`));
      for (const record of part.records) rows.prepend(row(record));
      while (rows.childElementCount > MOST_ROWS) rows.lastElementChild.remove();
      state.textContent = `${count} since you began. The newest are on top.`;
    });
    source.addEventListener("problem", (event) => stop(JSON.parse(event.data).message));
    source.addEventListener("error", () => {
      if (source?.readyState === EventSource.CLOSED) stop("The console does not send more: are too many tails open?");
      else state.textContent = "Connecting again…";
    });
  };

  button.hidden = false;
  button.addEventListener("click", () => (source ? stop("Stopped.") : start()));
  addEventListener("pagehide", () => source?.close());
}

function made(kind, className, ...content) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  element.append(...content); // Strings become text.
  return element;
}

function row(record) {
  const link = made("a", "", made("small", "", `${record.partition}:`), String(record.offset));
  link.href = record.url;
  const head = made("th", "n", link);
  head.scope = "row";
  const key = record.value.kind === "control" ? made("code", "") : made("code", "", shown(record.key));
  const value = made(record.value.kind === "control" ? "span" : "code", record.value.kind === "problem" ? "bad" : "", shown(record.value));
  return made(
    "tr",
    `fresh ${record.style}`,
    head,
    record.time ? made("td", "time", made("span", "date", record.time.slice(0, 11)), record.time.slice(11)) : made("td", "time", "–"),
    made("td", "key", key),
    made("td", "value wide", value, ...(record.value.note ? [made("small", "reading", record.value.note)] : [])),
    made("td", "", made("span", `fate ${record.style}`, record.fate)),
  );
}

function shown(bytes) {
  if (bytes.kind === "null" || bytes.kind === "empty") return made("i", "none", bytes.kind);
  return bytes.cut ? `${bytes.text} …` : bytes.text;
}

function note(text) {
  const cell = made("td", "none", text);
  cell.colSpan = 5;
  return made("tr", "", cell);
}
