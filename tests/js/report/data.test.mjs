import assert from "node:assert/strict";
import test from "node:test";
import { parseRoute } from "../../../static/js/report/data.js";

test("addresses of a report", () => {
  assert.deepEqual(parseRoute(""), { page: "/", launch: null, place: null });
  assert.deepEqual(parseRoute("#/steps"), { page: "/steps", launch: null, place: null });
  assert.deepEqual(parseRoute("#/steps/3?launch=7"), { page: "/steps/3?log=0", launch: 7, place: null });
  assert.deepEqual(parseRoute("#/steps/3?log=2&launch=7").page, "/steps/3?log=2");
  assert.deepEqual(parseRoute("#/graphs/1#L12"), { page: "/graphs/1", launch: null, place: "L12" });
  assert.equal(parseRoute("#/values").page, "/values?log=0");
  assert.equal(parseRoute("#/kernels/a~2Fb").page, "/kernels/a~2Fb");
  assert.equal(parseRoute("#/curves?moment=after&site=1&argument=2&statistic=mean").page, "/curves?site=1&argument=2&moment=after");
  assert.deepEqual(parseRoute("#/compile/0_0?log=0#artifacts").place, "artifacts");
});
