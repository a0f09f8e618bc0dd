-- Takes tokens from one or more buckets and windows at once, from all or from none. Put last, behind the algorithms of
-- its keys.
--
-- KEYS   the buckets and windows, each once.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be charged any more.
--        [2] units: the number of equal requests.
--        then six per key: the letter of its algorithm, the charge of a unit (ticks of a bucket, tokens of a window),
--        and four numbers that the algorithm's file explains. All are integers.
-- Reply  integers: units granted (-1: past the deadline, or outside the fixed window that was sent), Redis time in
--        microseconds, then three per key: whole tokens left, microseconds until one more unit fits here (0 when all
--        units were granted; of a window also then), microseconds until all tokens are back. A key whose value is not
--        Tollgate's has -1, 0, 0: it does not count, and nothing is charged to it.
--
-- The smallest number of units that any key has room for is charged to every key.
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

local units = tonumber(ARGV[2])
local granted = units
local opened = {}

for i, key in ipairs(KEYS) do
  local arg = 6 * i - 3
  local state, fitting = algorithms[ARGV[arg]].open(key, now, arg + 2, tonumber(ARGV[arg + 1]))
  if state == false then return { -1, now } end
  opened[i] = state
  if state then granted = math.min(granted, fitting) end
end

local reply = { granted, now }
for i, key in ipairs(KEYS) do
  local remaining, retry_after, reset_after = -1, 0, 0
  if opened[i] then
    local close = algorithms[ARGV[6 * i - 3]].close
    remaining, retry_after, reset_after = close(key, now, opened[i], granted, units)
  end
  reply[3 * i] = remaining
  reply[3 * i + 1] = retry_after
  reply[3 * i + 2] = reset_after
end
return reply
