// What pages do by themselves: they ask again, move by keys, and follow a log. Without this file they work, and stand still.

import { keys } from "./keys.js";
import { live } from "./live.js";
import { tail } from "./tail.js";

for (const picture of document.querySelectorAll(".picture")) picture.scrollLeft = picture.scrollWidth; // The newest.
keys();
live();
tail();
