-- For wrk: posts the lines of a file in turn, one per request, and prints the results as JSON.
--   wrk ... --latency --script serving.lua URL -- FILE
-- `benchmarks/serving.py` calls it.

local bodies, position = {}, 0

function init(arguments)
   for line in io.lines(arguments[1]) do
      local escaped = line:gsub('[%c"\\]', function(c) return string.format("\\u%04x", c:byte()) end)
      bodies[#bodies + 1] = '{"instances": ["' .. escaped .. '"]}'
   end
end

function request()
   position = position % #bodies + 1
   return wrk.format("POST", nil, {["Content-Type"] = "application/json"}, bodies[position])
end

function done(summary, latency)
   local errors = summary.errors
   print(string.format(
      '{"answers": %d, "refused": %d, "lost": %d, "seconds": %f, "p50": %f, "p95": %f, "p99": %f, "max": %f}',
      summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
      summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
      latency:percentile(99) / 1e3, latency.max / 1e3))
end
