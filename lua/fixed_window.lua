-- Tokens that all come back at the end of the window they were taken in. Put behind window.lua.
--
-- ARGV   quota in tokens, then either the windows' length in microseconds, 0 and 0, of windows that are counted from 1970 on;
--        or, by a calendar, three times in Redis microseconds: the start of a window, its end, and the end of the next. The
--        caller knows the calendar, Redis the time: at any other time the caller is told that, and asks again.

algorithms.f = window_by(function(now, arg)
  local start, stop, next_stop = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  if stop == 0 then return math.floor(now / start) * start + start end
  if now < start or now >= next_stop then return nil end
  if now < stop then return stop end
  return next_stop
end)
