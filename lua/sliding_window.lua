-- Sliding windows: each token expires when it is a window old. Put behind window.lua.
--
-- ARGV   quota in tokens, the window's length in microseconds, the steps that it is divided into, and 0. Tokens of one
--        step expire together, at the end of the step a window later: never early.

algorithms.s = window_by(function(now, limit)
  local width, grain = unpack(limit, 1, 2)
  local expires_at = ceil(now / grain) * grain + width
  return expires_at, expires_at, 0
end)
