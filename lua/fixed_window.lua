-- Fixed windows: tokens expire at the end of the window that they were taken in. Put behind window.lua.
--
-- ARGV   quota in tokens, then one of two forms. For windows counted from 1970 on: their length in microseconds, 0 and
--        0. For windows by a calendar: the start of a window, its end, and the end of the next, in microseconds of
--        Redis time. The caller knows the calendar, Redis the time: at any other time the reply says so, and the caller
--        asks again.

-- The largest step back of the clock that begins no window anew.
local MAX_STEP_BACK = 10000000

algorithms.f = window_by(function(now, limit)
  local start, stop, next_stop = unpack(limit, 1, 3)
  local step_back = MAX_STEP_BACK
  if stop == 0 then
    step_back = min(step_back, start)
    stop = floor(now / start) * start + start
    next_stop = stop + start
  elseif now < start or now >= next_stop then
    return nil
  elseif now >= stop then
    -- The caller does not know the window after this, which may have begun before the clock stepped back.
    if next_stop - now <= step_back then return nil end
    stop = next_stop
  end
  if stop - now > step_back then next_stop = stop end
  return stop, next_stop, step_back
end)
