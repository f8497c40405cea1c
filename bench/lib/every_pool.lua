-- Each request goes to the next pool: p0.example, p1.example and so on. Its argument: how many there are.
local at, count = 0, 1
function init(args)
  count = tonumber(args[1])
end
function request()
  at = (at + 1) % count
  return wrk.format("GET", "/pool.php", {Host = "p" .. at .. ".example"})
end
