-- Tokens that each come back when they are a window old. Put behind window.lua.
--
-- ARGV   quota in tokens, the window's length in microseconds, the steps it is told apart in, and 0. Tokens of one step come
--        back together, at the end of the step a window later: never early.

algorithms.s = window_by(function(now, arg)
  local width, grain = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  return math.ceil(now / grain) * grain + width
end)
