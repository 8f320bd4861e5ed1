-- Sends the body in $BODY over and over; reports as one line of JSON.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["content-type"] = "application/json"
-- With tensors' bytes behind the JSON: how long the JSON is.
local json_bytes = os.getenv("JSON_BYTES")
if json_bytes then
  wrk.headers["content-type"] = "application/octet-stream"
  wrk.headers["inference-header-content-length"] = json_bytes
end
file:close()

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
