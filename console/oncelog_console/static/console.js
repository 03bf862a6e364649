// What pages do by themselves: they ask again, move by keys, and follow a log. Without this file they work, and stand still.

import { keys } from "./keys.js";
import { live } from "./live.js";
import { tail } from "./tail.js";

keys();
live();
tail();
