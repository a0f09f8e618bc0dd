-- Corrects buckets and windows: charges tokens that were admitted while Redis was away or that a request cost beyond
-- its reservation, and refunds tokens that were taken or reserved and not spent. Put last, behind the algorithms.
--
-- KEYS   the buckets and windows, then the marker of the node that sends this, if the batch has a number. Then for each
--        bucket and window a note of when debts found it full, or none at all.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] the number of the
--        batch among the node's own; 0: it has none, and is sent once. [3] milliseconds to keep the marker. [4] the
--        nodes of the fleet. [5] milliseconds to keep a note. [6] buckets and windows.
--        then ten per key: its place in the batch, from 1 on; the letter of its algorithm; the charge, and for how many
--        microseconds tokens that flowed in may have paid for it; the refund, and the Redis time in microseconds at
--        which the refunded tokens had been taken; the algorithm's four numbers as for take.lua. Charge and refund are
--        ticks of a bucket, tokens of a window.
--        then the numbers of batches whose answer the node has, and which it will not send again.
-- Reply  integers: 1 (-1: past the deadline, or outside the fixed window that was sent), Redis time in microseconds,
--        then one per key: 1 corrected, by this call or by an earlier one of the same batch; 0 the value is not
--        Tollgate's; 2 it is another algorithm's.
--
-- The marker is a hash. It has for each batch that may be sent again a text with a character for each place: that of
-- the reply, or "." for a place that was not in any call yet. So a batch whose answer was lost is sent again and charges
-- nothing twice, also when a part of it is sent at a time.
--
-- A charge or refund that another algorithm's value meets is dropped: the limit began anew, or is about to.
--
-- A charge counts in tokens like all consumption, and leaves a bucket stored by the faster of the two limits. It counts
-- beyond the burst: what is cut off would be admitted twice. After an outage for all nodes, the first debts find a bucket
-- full, and the others find the charge of the first: the note tells them that all of them are paid by what flowed in.
--
-- Never: makes a correction of a numbered batch twice, lets a key with a foreign value keep others from theirs, nor
-- anything that take.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local function number(place) return tonumber(ARGV[place]) end
local buckets = number(6)

-- Before anything is changed: a call outside its fixed window is made again, and must not charge twice.
for i = 1, buckets do
  local arg = 10 * i - 3
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

local missing, refused = {}, false
for i = 1, buckets do
  local place = number(10 * i - 3)
  if not string.match(results[place] or '', '%d') then
    missing[#missing + 1], results[place], last = i, '1', max(last, place)
  end
end

local function mark()
  for place = 1, last do results[place] = results[place] or '.' end
  redis.call('HSET', marker, ARGV[2], table.concat(results, '', 1, last))
end

-- Before the corrections: without the permission for these commands, none is made.
if marker then
  local answered = 10 * buckets + 7
  if #ARGV >= answered then redis.call('HDEL', marker, unpack(ARGV, answered)) end
  if #missing > 0 then mark() end
  redis.call('PEXPIRE', marker, ARGV[3])
end

-- For how many microseconds the rate paid for a charge of this age: a node's part of the rate, and only where nothing else
-- had use for it. That is so if the bucket is full. It is also so for what flowed in before debts of another node found
-- it full, a moment ago: since then it may be in use.
local function paid_us(i, age, is_full)
  local note, full_at = marker and KEYS[buckets + 1 + i], is_full and now
  -- Costs that responses tell are charged at once: they need no note.
  if note and age >= 10000 then
    if is_full then
      redis.call('SET', note, string.format('%.0f', now), 'PX', ARGV[5])
    else
      full_at = tonumber(get(note) or '')
    end
  end
  if not full_at then return 0 end
  return floor(max(0, age - max(0, now - full_at)) / number(4))
end

for _, i in ipairs(missing) do
  local arg = 10 * i - 3
  local algorithm = algorithms[ARGV[arg + 1]]
  local charge, age, refund, taken_at = number(arg + 2), number(arg + 3), number(arg + 4), number(arg + 5)
  local limit = algorithm.limit(number(arg + 6), number(arg + 7), number(arg + 8), number(arg + 9))
  local paid = function(is_full) return paid_us(i, age, is_full) end
  local made = algorithm.adjust(KEYS[i], now, limit, charge, age, refund, taken_at, paid)
  if not made then
    results[number(arg)], refused = made == nil and '0' or '2', true
  end
end
if marker and refused then mark() end

local reply = { 1, now }
for i = 1, buckets do reply[2 + i] = tonumber(results[number(10 * i - 3)]) end
return reply
