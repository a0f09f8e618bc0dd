-- Corrects buckets and windows: charges tokens that were admitted while Redis was away or that a request cost beyond
-- its reservation, and refunds tokens that were taken or reserved and not spent. Put last, behind the algorithms.
--
-- KEYS   the buckets and windows.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more.
--        then eight per key: the letter of its algorithm, the charge, the refund, the Redis time in microseconds at
--        which the refunded tokens had been taken, and the algorithm's four numbers as for take.lua. Charge and refund
--        are ticks of a bucket, tokens of a window. A bucket's capacity and a window's quota only bound the charge:
--        2^52 where all of it counts.
-- Reply  integers: 1 (-1: past the deadline, or outside the fixed window that was sent), Redis time in microseconds.
--
-- A charge counts in tokens like all consumption, and leaves a bucket stored by the faster of the two limits.
--
-- Never: leaves more missing than all of a key's tokens or the charge itself, or less than before; and nothing that
-- take.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local function number(place) return tonumber(ARGV[place]) end

-- Before anything is changed: a call outside its fixed window is made again, and must not charge twice.
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
