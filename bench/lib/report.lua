-- Makes wrk print its figures as one line that a program can read.
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'WRK {"requests":%d,"bytes":%d,"seconds":%.6f,"p50_ms":%.3f,"p90_ms":%.3f,"p99_ms":%.3f,"longest_ms":%.3f,' ..
    '"errors":{"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d}}\n',
    summary.requests, summary.bytes, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    e.connect, e.read, e.write, e.timeout, e.status))
end
