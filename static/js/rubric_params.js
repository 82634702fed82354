/* The form of a kind's parameters, made from what the kind declares. */
import { codeField } from "./rubric_code.js";
import { complete } from "./rubric_complete.js";
import { field, h, newId, words } from "./rubric_dom.js";

const LABELS = { allows_na: "May not apply", max_tokens: "Longest reply, in tokens" };
const RARE = new Set(["allows_na", "temperature", "seed", "max_tokens", "repeats"]);
/* Set for a range only. */
const OF_A_RANGE = new Set(["min", "max", "anchors"]);
const LONG = new Set(["question"]);
const CODE = { source: "python", query: "sql" };

export function paramFields(criterion, kind, data, set) {
  const values = criterion.params ?? {};
  const isBinary = kind.params.some((param) => param.name === "scale") && (values.scale ?? "binary") === "binary";
  const shown = kind.params.filter((param) => !(isBinary && OF_A_RANGE.has(param.name) && values[param.name] === undefined));
  const build = (param) => paramField(param, values[param.name], data, set);
  const rare = shown.filter((param) => RARE.has(param.name));
  const usual = shown.filter((param) => !RARE.has(param.name)).map(build);
  if (!rare.length) return usual;
  return [
    ...usual,
    h(
      "details",
      { class: "fold wide", open: rare.some((param) => values[param.name] !== undefined) },
      h("summary", { class: "small" }, "How it is asked"),
      h("div", { class: "form crit-form pad" }, rare.map(build)),
    ),
  ];
}

function paramField(param, value, data, set) {
  const label = (LABELS[param.name] ?? words(param.name)).replace(/^./, (letter) => letter.toUpperCase());
  const help = param.about;
  const options = { help, note: `params.${param.name}` };
  if (param.type === "flag") return flag(param, value, label, help, set);
  if (param.options.length) return several(param, value, label, help, set);
  if (param.choices.length) return field(label, choice(param, value, set), options);
  const wide = { ...options, kind: "wide" };
  if (CODE[param.name] && param.type === "text") return field(label, code(param, value, CODE[param.name], data, set), wide);
  if (param.type === "object" || param.type === "json") return field(label, json(param, value, set), wide);
  if (param.type === "number" || param.type === "count") return field(label, number(param, value, set), options);
  if (param.type === "texts" || param.type === "patterns") return field(label, lines(param, value, set), { ...wide, help: `${help}; one in each line` });
  return text(param, value, label, data, set, wide);
}

function flag(param, value, label, help, set) {
  const box = h("input", {
    type: "checkbox",
    checked: value ?? param.default ?? false,
    onchange: () => set(param.name, box.checked === (param.default ?? false) ? undefined : box.checked, true),
  });
  return h("div", { class: "field check" }, h("label", {}, box, label), h("p", { class: "help" }, help), notes(param));
}

const notes = (param) => h("div", { class: "notes", "data-note": `params.${param.name}` });

function several(param, value, label, help, set) {
  const chosen = new Set(value ?? param.default ?? []);
  const told = () => {
    const list = param.options.filter((option) => chosen.has(option));
    set(param.name, list.join() === (param.default ?? []).join() ? undefined : list, true);
  };
  const box = (option) =>
    h(
      "label",
      {},
      h("input", {
        type: "checkbox",
        checked: chosen.has(option),
        onchange: (event) => {
          if (event.target.checked) chosen.add(option);
          else chosen.delete(option);
          told();
        },
      }),
      option,
    );
  return h(
    "fieldset",
    { class: "field wide" },
    h("legend", {}, label),
    h("div", { class: "radios line" }, param.options.map(box)),
    h("p", { class: "help" }, help.replace(/:.*/, "")),
    notes(param),
  );
}

function choice(param, value, set) {
  const select = h(
    "select",
    { onchange: () => set(param.name, select.value === (param.default ?? "") ? undefined : select.value, param.name === "scale" ? "structural" : true) },
    param.default || param.required ? null : h("option", { value: "" }, "–"),
    param.choices.map((option) => h("option", { value: option }, words(option))),
  );
  select.value = value ?? param.default ?? "";
  return select;
}

function code(param, value, language, data, set) {
  return codeField({
    value: value ?? "",
    language,
    completions: language === "python" ? data.completions.python : [],
    oninput: (typed) => set(param.name, typed === "" ? undefined : typed),
    rows: language === "python" ? 8 : 3,
  });
}

/* What is no JSON yet is kept as the text that it is. */
function json(param, value, set) {
  const shown = value === undefined ? "" : typeof value === "string" && !isJson(value) ? value : JSON.stringify(value, null, 2);
  return codeField({
    value: shown,
    language: "json",
    rows: 3,
    oninput: (typed) => set(param.name, typed.trim() === "" ? undefined : parsed(typed)),
  });
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function number(param, value, set) {
  const input = h("input", {
    type: "text",
    inputmode: "decimal",
    value: value ?? "",
    placeholder: param.default ?? "",
    oninput: () => {
      const typed = input.value.trim();
      const amount = Number(typed);
      set(param.name, typed === "" ? undefined : Number.isFinite(amount) ? amount : typed);
    },
  });
  return input;
}

function lines(param, value, set) {
  const area = h("textarea", {
    rows: 2,
    class: param.type === "patterns" ? "code-text grow" : "grow",
    spellcheck: "false",
    value: Array.isArray(value) ? value.join("\n") : (value ?? ""),
    oninput: () => {
      const list = area.value.split("\n").filter((line) => line !== "");
      set(param.name, list.length ? list : undefined);
    },
  });
  return area;
}

function text(param, value, label, data, set, options) {
  const oninput = (event) => set(param.name, event.target.value === "" ? undefined : event.target.value);
  if (param.name === "model") return model(label, value, data, oninput, options);
  const isMono = param.type === "pattern" || param.name === "path";
  const isLong = LONG.has(param.name);
  if (isMono) {
    const input = h("input", { type: "text", class: "mono", spellcheck: "false", autocomplete: "off", value: value ?? "", oninput });
    const built = field(label, input, options);
    if (param.name === "path" && data.isJsonPath) {
      const host = h("div", { class: "completes" });
      input.replaceWith(host);
      host.append(input);
      complete(input, host, data.completions.path);
    }
    return built;
  }
  const area = h("textarea", { rows: isLong ? 3 : 1, class: "grow", value: value ?? "", oninput });
  return field(label, area, options);
}

function model(label, value, data, oninput, options) {
  const id = newId("models");
  const input = h("input", { type: "text", list: id, autocomplete: "off", value: value ?? "", oninput });
  const built = field(label, input, { ...options, kind: "" });
  built.append(h("datalist", { id }, data.endpoints.map((endpoint) => h("option", { value: endpoint.name }))));
  return built;
}
