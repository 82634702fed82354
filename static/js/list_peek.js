/* The peek drawer: a row's rollout over the list. The address names the open row, so that a link, back and forward show
   it; arrows step through the rows, Esc closes, and the list stays as it was. */

export function mountPeek(dialog, section) {
  const rows = [...section.querySelectorAll("tr[data-peek]")];
  const body = dialog.querySelector("[data-peek-body]");
  const title = dialog.querySelector("#peek-title");
  const page = dialog.querySelector("[data-peek-page]");
  let at = -1;
  let wanted = 0;

  const address = (id) => {
    const url = new URL(location.href);
    if (id) url.searchParams.set("open", id);
    else url.searchParams.delete("open");
    return url;
  };

  const show = async (index) => {
    const row = rows[index];
    const mine = (wanted += 1);
    at = index;
    for (const each of rows) each.classList.toggle("is-open", each === row);
    row.scrollIntoView({ block: "nearest" });
    const link = row.querySelector("a.main-link");
    title.textContent = link.textContent;
    page.href = link.href;
    dialog.querySelector('[data-peek-step="-1"]').disabled = index === 0;
    dialog.querySelector('[data-peek-step="1"]').disabled = index === rows.length - 1;
    if (!dialog.open) dialog.showModal();
    body.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(row.dataset.peek, { credentials: "same-origin" });
      const text = answer.ok ? await answer.text() : "";
      if (mine !== wanted) return;
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      body.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
      mountTrace(body);
    } catch (error) {
      if (mine === wanted) body.replaceChildren(failed(error, () => show(index)));
    } finally {
      if (mine === wanted) {
        body.removeAttribute("aria-busy");
        body.scrollTop = 0;
      }
    }
  };

  const open = (index) => {
    const isStep = dialog.open;
    const url = address(rows[index].dataset.id);
    if (isStep) history.replaceState(history.state, "", url);
    else history.pushState({ peek: true }, "", url);
    show(index);
  };

  const close = () => {
    wanted += 1;
    rows[at]?.classList.remove("is-open");
    rows[at]?.querySelector("a.main-link")?.focus({ preventScroll: true });
    if (!new URL(location.href).searchParams.has("open")) return;
    if (history.state?.peek) history.back();
    else history.replaceState(null, "", address(""));
  };

  const fromAddress = () => {
    const id = new URL(location.href).searchParams.get("open");
    const index = rows.findIndex((row) => row.dataset.id === id);
    if (index >= 0) show(index);
    else if (dialog.open) dialog.close();
  };

  section.addEventListener("click", (event) => {
    const link = event.target.closest("tr[data-peek] a.main-link");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    open(rows.indexOf(link.closest("tr")));
  });
  for (const button of dialog.querySelectorAll("[data-peek-step]")) {
    button.addEventListener("click", () => step(Number(button.dataset.peekStep)));
  }
  const step = (by) => rows[at + by] && open(at + by);
  dialog.querySelector("[data-peek-share]").addEventListener("click", async (event) => {
    const word = event.currentTarget.querySelector("span");
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    word.textContent = "Copied";
    setTimeout(() => (word.textContent = "Copy link"), 1500);
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  dialog.addEventListener("close", close);
  addEventListener("popstate", fromAddress);
  fromAddress();
}

/* Bodies come when a line is opened, each once; what is looked for marks its lines. */
function mountTrace(body) {
  const lines = body.querySelector(".peek-lines");
  for (const line of lines?.querySelectorAll("details") ?? []) {
    line.addEventListener("toggle", () => line.open && fill(line, lines.dataset.cardsUrl));
  }
  const find = body.querySelector("[data-peek-find]");
  if (!find || !lines) return;
  const place = body.querySelector("[data-peek-place]");
  const idle = place.textContent;
  let timer = 0;
  let mine = 0;
  find.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const now = (mine += 1);
      const text = find.value.trim();
      const seqs = text ? await hits(find.dataset.url, text) : null;
      if (now !== mine) return;
      for (const line of lines.children) line.classList.toggle("is-hit", Boolean(seqs?.has(line.dataset.seq)));
      place.textContent = seqs ? `${seqs.size.toLocaleString("en")} event${seqs.size === 1 ? "" : "s"} with it` : idle;
      lines.querySelector(".is-hit")?.scrollIntoView({ block: "nearest" });
    }, 150);
  });
}

async function hits(url, text) {
  try {
    const answer = await fetch(`${url}?${new URLSearchParams({ q: text })}`, { credentials: "same-origin" });
    return new Set(answer.ok ? (await answer.json()).seqs.map(String) : []);
  } catch {
    return new Set();
  }
}

async function fill(line, url) {
  const place = line.querySelector(".peek-card");
  if (place.dataset.filled !== undefined) return;
  place.dataset.filled = "";
  const ghost = document.createElement("div");
  ghost.className = "ghost";
  place.replaceChildren(ghost);
  try {
    const answer = await fetch(`${url}?seqs=${line.dataset.seq}`, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    place.replaceChildren(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
  } catch (error) {
    delete place.dataset.filled;
    place.replaceChildren(failed(error, () => fill(line, url)));
  }
}

function failed(error, again) {
  const notice = document.createElement("div");
  notice.className = "notice bad";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "btn slim";
  button.textContent = "Try again";
  button.addEventListener("click", again);
  notice.append(`This could not be read: ${error.message}. `, button);
  return notice;
}
