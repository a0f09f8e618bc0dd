-- The values of keys, whatever the algorithm. Put before every script that touches them.
--
-- Each algorithm stores a form of its own, which its file explains; fixed and sliding windows share one. A key that is
-- absent has all of its tokens. A limit may have had another algorithm a moment ago: a value of another form
-- counts as absent, and the next grant overwrites it. Debts and refunds leave it as it is while tokens of it are out,
-- since they belong to one algorithm as well.

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local MAX_TICKS = 4503599627370496
local FOREIGN = "TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?"

-- The forms of values. A bucket is a letter and five numbers, as doubles: Lua's own, which cost least to read and write.
local BUCKET, BUCKET_BYTES = '<c1ddddd', 41
local WINDOW = '^%d+=%d+[%d=,]*$'

-- The numbers of a bucket: see token_bucket.lua. Nothing: the value has another form.
local function bucket_of(value)
  if #value ~= BUCKET_BYTES then return nil end
  local letter, tat, frac, emission, ticks, most = struct.unpack(BUCKET, value)
  -- Said so that NaN does not pass.
  local is_whole = tat % 1 + frac % 1 + emission % 1 + ticks % 1 + most % 1 == 0
  if letter == 'b' and is_whole and tat >= 0 and frac >= 0 and frac < ticks and ticks <= MAX_TICKS
    and emission >= 1 and emission <= MAX_TICKS and most >= 0 and most <= MAX_TICKS then
    return tat, frac, emission, ticks, most
  end
end

-- Whether tokens are out by a value that has the form of another algorithm. Nil: it has that of none.
local function is_out_by_another(value, now)
  local tat, frac = bucket_of(value)
  if tat then return tat > now or tat == now and frac > 0 end
  if not string.match(value, WINDOW) then return nil end
  for till in string.gmatch(value, '(%d+)=') do
    if tonumber(till) > now then return true end
  end
  return false
end

-- The value of a key. One that is no text, like a list, is as foreign as any other: it must not end the script, which
-- has other keys.
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  -- Any other error, such as a missing permission, is no key's fault: it is raised.
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return redis.call('GET', key) end
  return ''
end

-- The functions of each algorithm, by the letter that stands for it in ARGV. `limit` makes of its four numbers what the
-- others are given.
local algorithms = {}
