-- Corrects buckets and windows: charges tokens that were admitted while Redis was away or that a request cost beyond
-- its reservation, and refunds tokens that were taken or reserved and not spent. Put last, behind the algorithms.
--
-- KEYS   the buckets and windows, then the marker of the node that sends this, if the batch has a number.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] the number of the
--        batch among the node's own; 0: it has none, and is sent once. [3] milliseconds to keep the marker. [4] buckets
--        and windows.
--        then ten per key: its place in the batch, from 1 on; the letter of its algorithm; the charge, and for how many
--        microseconds it has been owed; the refund, and the Redis time in microseconds at which the refunded tokens had
--        been taken; the algorithm's four numbers as for take.lua. Charge and refund are ticks of a bucket, tokens of
--        a window.
--        then the numbers of batches whose answer the node has, and which it will not send again.
-- Reply  integers: 1 (-1: past the deadline, or outside the fixed window that was sent), Redis time in microseconds,
--        then one per key: 1 corrected, by this call or by an earlier one of the same batch; 0 the value is not
--        Tollgate's.
--
-- The marker is a hash. It has for each batch that may be sent again a text with a character for each place: 1 or 0 as
-- in the reply, "." for a place that was not in any call yet. So a batch whose answer was lost is sent again and charges
-- nothing twice, also when a part of it is sent at a time.
--
-- A charge counts in tokens like all consumption, and leaves a bucket stored by the faster of the two limits. It counts
-- beyond the burst: what is cut off would be admitted twice.
--
-- Never: makes a correction of a numbered batch twice, lets a key with a foreign value keep others from theirs, nor
-- anything that take.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local function number(place) return tonumber(ARGV[place]) end
local buckets = number(4)

-- Before anything is changed: a call outside its fixed window is made again, and must not charge twice.
for i = 1, buckets do
  local arg = 10 * i - 5
  local by_calendar = ARGV[arg + 1] == 'f' and number(arg + 8) > 0
  if by_calendar and (now < number(arg + 7) or now >= number(arg + 9)) then return { -1, now } end
end

-- The places of the batch that were corrected before, and their results.
local marker, results, last = KEYS[buckets + 1], {}, 0
if marker then
  local known = redis.pcall('HGET', marker, ARGV[2])
  if type(known) == 'table' then
    if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
    redis.call('DEL', marker)
    known = nil
  end
  last = known and #known or 0
  for place = 1, last do results[place] = string.sub(known, place, place) end
end

local missing, foreign = {}, false
for i = 1, buckets do
  local place = number(10 * i - 5)
  if results[place] ~= '1' and results[place] ~= '0' then
    missing[#missing + 1], results[place], last = i, '1', math.max(last, place)
  end
end

local function mark()
  for place = 1, last do results[place] = results[place] or '.' end
  redis.call('HSET', marker, ARGV[2], table.concat(results, '', 1, last))
end

-- Before the corrections: without the permission for these commands, none is made.
if marker then
  local answered = 10 * buckets + 5
  if #ARGV >= answered then redis.call('HDEL', marker, unpack(ARGV, answered)) end
  if #missing > 0 then mark() end
  redis.call('PEXPIRE', marker, ARGV[3])
end

for _, i in ipairs(missing) do
  local arg = 10 * i - 5
  local adjust = algorithms[ARGV[arg + 1]].adjust
  if not adjust(KEYS[i], now, arg + 6, number(arg + 2), number(arg + 3), number(arg + 4), number(arg + 5)) then
    results[number(arg)], foreign = '0', true
  end
end
if marker and foreign then mark() end

local reply = { 1, now }
for i = 1, buckets do reply[2 + i] = tonumber(results[number(10 * i - 5)]) end
return reply
