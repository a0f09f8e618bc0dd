-- Takes tokens for groups of equal requests, each from one or more buckets and windows: from all of a group's, or from
-- none. Put last, behind the algorithms of its keys.
--
-- KEYS   the buckets and windows of the first group, each once, then those of the next.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be charged any more.
--        [2] limits: for each the letter of its algorithm, and four numbers that the algorithm's file explains.
--        [3] groups: for each its units, the number of equal requests, and its number of keys, and then two numbers per
--        key: the place of its limit, from 1 on, and the charge of a unit (ticks of a bucket, tokens of a window).
--        The numbers of [2] and [3] are integers, as doubles, which cost Redis least to read.
-- Reply  integers: 1 (-1: past the deadline), Redis time in microseconds, then per group: units granted (-1: outside the
--        fixed window that was sent), and three per key: whole tokens left, microseconds until one more unit fits here
--        (0 when all units were granted; of a window also then), microseconds until all tokens are back. A key whose
--        value is not Tollgate's has -1, 0, 0: it does not count, and nothing is charged to it.
--
-- The smallest number of units that any key of a group has room for is charged to each of them. A group is decided as if
-- it had been sent alone, behind those before it.
--
-- A key that another algorithm wrote counts as absent: the limit begins anew.
--
-- Never: reads a caller's clock for the arithmetic, writes on a denial (except once: for a bucket whose limit is faster
-- than the one it is stored by, for a window that was longer, or because the clock stepped back), forgets consumption by
-- another version of a limit, leaves a key without expiry, leaves the integers below 2^53, or puts a key into an error.

-- Redis before 7 can be configured to replicate scripts by their text, which a script that reads the time must opt out
-- of.
if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local limits, groups, at = {}, ARGV[3], 1
while at <= #ARGV[2] do
  local letter, a, b, c, d, behind = struct.unpack('<c1dddd', ARGV[2], at)
  local limit = algorithms[letter].limit(a, b, c, d)
  limit.open, limit.close = algorithms[letter].open, algorithms[letter].close
  limits[#limits + 1], at = limit, behind
end

local reply, filled, first = { 1, now }, 2, 1
at = 1
while at <= #groups do
  local units, keys, charges = struct.unpack('<dd', groups, at)
  local granted, last, opened = units, first + keys - 1, {}
  at = charges
  for i = first, last do
    local place, charge, behind = struct.unpack('<dd', groups, at)
    local limit = limits[place]
    local state, fitting = limit.open(KEYS[i], now, limit, charge)
    if state == false then
      granted = -1
      break
    end
    if state and fitting < granted then granted = fitting end
    opened[i], at = state, behind
  end
  filled = filled + 1
  reply[filled] = granted
  for i = first, last do
    local remaining, retry_after, reset_after = -1, 0, 0
    local state = opened[i]
    if granted >= 0 and state then
      -- The limit is the first of each state.
      remaining, retry_after, reset_after = state[1].close(KEYS[i], now, state, granted, units)
    end
    reply[filled + 1], reply[filled + 2], reply[filled + 3] = remaining, retry_after, reset_after
    filled = filled + 3
  end
  first, at = last + 1, charges + 16 * keys
end
return reply
