-- Corrects buckets and windows for what happened outside of them: charges what was admitted while Redis was away and what a
-- request cost beyond its reservation, gives back what was taken or reserved and not spent. Put last, behind the algorithms.
--
-- KEYS   the buckets and windows.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more.
--        then eight per key: the letter of its algorithm, what is owed, what is given back, the Redis time in microseconds
--        at which the latter had been taken, and the algorithm's four numbers as for take.lua. Owed and given back are
--        ticks of a bucket, tokens of a window. A bucket's capacity and a window's quota only bound what is owed: 2^52
--        where all of it counts.
-- Reply  integers: 1 (-1: past the deadline, or not the time that a fixed window was told for), Redis time in microseconds.
--
-- A debt counts in tokens like all that was consumed, and leaves a bucket stored by the faster of the two limits.
--
-- Never: makes a key owe more than all it has or the debt itself, or less than it did; and nothing that take.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local function number(place) return tonumber(ARGV[place]) end

-- Before anything is changed: what was told for another time is asked for again, and must not be owed twice.
for i in ipairs(KEYS) do
  local arg = 8 * i - 6
  local by_calendar = ARGV[arg] == 'f' and number(arg + 6) > 0
  if by_calendar and (now < number(arg + 5) or now >= number(arg + 7)) then return { -1, now } end
end

for i, key in ipairs(KEYS) do
  local arg = 8 * i - 6
  local done = algorithms[ARGV[arg]].adjust(key, now, arg + 4, number(arg + 1), number(arg + 2), number(arg + 3))
  if not done then return redis.error_reply(FOREIGN) end
end
return { 1, now }
