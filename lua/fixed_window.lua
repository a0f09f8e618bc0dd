-- Fixed windows: tokens expire at the end of the window that they were taken in. Put behind window.lua.
--
-- ARGV   quota in tokens, then one of two forms. For windows counted from 1970 on: their length in microseconds, 0 and
--        0. For windows by a calendar: the start of a window, its end, and the end of the next, in microseconds of
--        Redis time. The caller knows the calendar, Redis the time: at any other time the reply says so, and the caller
--        asks again.

algorithms.f = window_by(function(now, arg)
  local start, stop, next_stop = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  if stop == 0 then return math.floor(now / start) * start + start end
  if now < start or now >= next_stop then return nil end
  if now < stop then return stop end
  return next_stop
end)
