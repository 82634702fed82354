/* What every page has: keys, copy, sheets, confirmations, and the modules of its elements. */
import { mountCommon } from "./common.js";
import { mountKeys } from "./keys.js";
import { mountAll } from "./mount.js";

document.documentElement.classList.add("js");
mountCommon();
mountKeys();
await mountAll(document);
document.documentElement.dataset.ready = "";
