/* Criteria that a model drafts: asked for, followed, and taken one by one. Nothing enters the draft by itself. */
import { field, h, icon, words } from "./rubric_dom.js";

const LOOK_MS = 1000;

export class Suggestions {
  constructor({ box, data, token, take }) {
    Object.assign(this, { box, data, token, take });
    this.now = data.suggestion;
    this.problem = "";
    this.show();
  }

  show() {
    clearTimeout(this.timer);
    if (this.now?.is_open) {
      this.box.replaceChildren(this.waiting());
      this.timer = setTimeout(() => this.look(), LOOK_MS);
      return;
    }
    const parts = [this.result(), this.ask()].filter(Boolean);
    this.box.replaceChildren(...parts);
  }

  /* --- asking ------------------------------------------------------------------------------------------------- */

  ask() {
    const { endpoints, environments, urls } = this.data;
    if (!endpoints.length)
      return h("p", { class: "muted small" }, "Needs a model. ", h("a", { class: "link", href: urls.models }, "Add one under Settings, Models"), ".");
    if (!environments.length)
      return h("p", { class: "muted small" }, "Needs a published environment. ", h("a", { class: "link", href: urls.environments }, "Environments"), ".");
    const options = (rows) => rows.map((row) => h("option", { value: row.id }, row.name));
    const environment = h("select", {}, options(environments));
    const endpoint = h("select", {}, options(endpoints));
    const traces = h("select", {}, [0, 3, 5, 10].map((n) => h("option", { value: n }, String(n))));
    traces.value = "3";
    const button = h("button", { type: "button", class: "btn", onclick: () => this.start(environment.value, endpoint.value, traces.value) }, icon("spark"), "Draft criteria");
    return h(
      "div",
      { class: "form crit-form" },
      this.problem ? h("p", { class: "note-line is-problem wide", role: "alert" }, icon("alert", "s"), h("span", {}, this.problem)) : null,
      field("Environment", environment, { kind: "wide" }),
      field("Model", endpoint),
      field("Traces at most", traces, { help: "of train tasks" }),
      h("div", { class: "wide" }, button),
    );
  }

  async start(environment, endpoint, traces) {
    await this.send(this.data.urls.suggest, { environment, endpoint, traces });
  }

  async send(address, values) {
    this.problem = "";
    try {
      const answer = await fetch(address, {
        method: "POST",
        body: new URLSearchParams(values),
        headers: { Accept: "application/json", "X-CSRFToken": this.token },
        credentials: "same-origin",
      });
      const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
      const body = isJson ? await answer.json() : { error: `The server refused this (${answer.status}).` };
      if (answer.ok && isJson) this.now = body;
      else this.problem = body.error;
    } catch {
      this.problem = "The server does not answer. Try again.";
    }
    this.show();
  }

  get address() {
    return `${this.data.urls.suggest}${this.now.id}/`;
  }

  /* --- waiting ------------------------------------------------------------------------------------------------ */

  waiting() {
    return h(
      "div",
      { class: "suggest-wait" },
      h("span", { class: "pill busy", role: "status" }, h("span", { class: "ring" }), h("span", {}, this.now.progress)),
      h("button", { type: "button", class: "btn quiet", onclick: () => this.send(this.address, { action: "cancel" }) }, "Cancel"),
    );
  }

  async look() {
    try {
      const answer = await fetch(this.address, { headers: { Accept: "application/json" }, credentials: "same-origin" });
      if (answer.ok && !answer.redirected) this.now = await answer.json();
    } catch {
      /* Looked for again below. */
    }
    this.show();
  }

  /* --- what came ---------------------------------------------------------------------------------------------- */

  result() {
    const { now } = this;
    if (!now || now.state === "cancelled") return null;
    const open = now.criteria.map((item, number) => ({ ...item, number })).filter((item) => !item.settled);
    const raw = now.raw
      ? h("details", { class: "fold" }, h("summary", { class: "small" }, "What the model said"), h("pre", { class: "block", dir: "auto", tabindex: 0 }, now.raw))
      : null;
    if (now.state === "failed")
      return h(
        "div",
        { class: "suggest-done" },
        h("p", { class: "note-line is-problem", role: "status" }, icon("alert", "s"), h("span", { dir: "auto" }, `No suggestions: ${now.error}`)),
        raw,
      );
    return h(
      "div",
      { class: "suggest-done" },
      open.length
        ? h("ul", { class: "suggest-list", "aria-label": "Suggestions" }, open.map((item) => this.item(item)))
        : h("p", { class: "muted small" }, now.criteria.length ? "All suggestions are settled." : "No usable criterion was proposed."),
      now.left_out.length
        ? h(
            "details",
            { class: "fold" },
            h("summary", { class: "small" }, `${now.left_out.length} left out`),
            h("ul", { class: "plain small" }, now.left_out.map((item) => h("li", { dir: "auto" }, h("span", { class: "strong" }, item.name), `: ${item.reason}`))),
          )
        : null,
      raw,
    );
  }

  item({ criterion, why, number }) {
    const settle = (action) => this.send(this.address, { action, number });
    const params = Object.entries(criterion.params ?? {});
    return h(
      "li",
      {},
      h(
        "p",
        { class: "name" },
        h("span", { class: "strong", dir: "auto" }, criterion.name),
        " ",
        h("span", { class: "tag" }, words(criterion.kind)),
        criterion.negative ? h("span", { class: "tag neg" }, "penalty") : null,
        criterion.required ? h("span", { class: "tag seal" }, "required") : null,
      ),
      why ? h("p", { class: "small muted", dir: "auto" }, why) : null,
      params.length
        ? h("pre", { class: "block", dir: "auto" }, params.map(([name, value]) => `${words(name)}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n"))
        : null,
      h(
        "div",
        { class: "btn-row" },
        h(
          "button",
          {
            type: "button",
            class: "btn",
            onclick: () => {
              this.take(criterion);
              settle("taken");
            },
          },
          icon("plus"),
          "Take",
          h("span", { class: "visually-hidden" }, ` ${criterion.name}`),
        ),
        h("button", { type: "button", class: "btn quiet", onclick: () => settle("dismissed") }, "Dismiss", h("span", { class: "visually-hidden" }, ` ${criterion.name}`)),
      ),
    );
  }
}
