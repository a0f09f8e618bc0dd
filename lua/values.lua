-- How buckets and windows are stored. Put before every script that touches them: a limit may have had another algorithm
-- a moment ago.
--
-- A token bucket is "tat:frac:E:D:M": it is full again at tat microseconds plus frac ticks, of which D make a
-- microsecond and E a token; when it was written, M ticks were missing. A window is "until=tokens,until=tokens": tokens
-- and when they expire, in microseconds, in the order in which they do. A key that is absent has all of its tokens.

local MAX_TICKS = 4503599627370496
local FOREIGN = "TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?"

-- The value of a key. One that is no text, like a list, is as foreign as any other: it must not end the script, which
-- has other keys.
local function get(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  -- Any other error, such as a missing permission, is no key's fault: it is raised.
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return redis.call('GET', key) end
  return ''
end

-- The functions of each algorithm, by the letter that stands for it in ARGV.
local algorithms = {}

-- The ticks that a bucket lacks, the E and D that they count by, and whether the clock stepped back since. Nil: not a
-- bucket.
local function read_bucket(value, now)
  local tat, frac, emission, ticks, most = string.match(value, '^(%d+):(%d+):(%d+):(%d+):(%d+)$')
  tat, frac, emission, ticks, most = tonumber(tat), tonumber(frac), tonumber(emission), tonumber(ticks), tonumber(most)
  if not tat or emission < 1 or emission > MAX_TICKS or ticks < 1 or frac >= ticks or most > MAX_TICKS then return nil end
  local left = math.max(0, (tat - now) * ticks + frac)
  return math.min(left, most), emission, ticks, left > most
end

-- The tokens of a window that are out, and two lists: until when, and how many. Nil: not a window.
local function read_window(value, now)
  if not string.match(value, '^%d+=%d+[%d=,]*$') then return nil end
  local used, untils, tokens = 0, {}, {}
  for till, count in string.gmatch(value, '(%d+)=(%d+)') do
    till, count = tonumber(till), tonumber(count)
    if till > now then
      used, untils[#untils + 1], tokens[#tokens + 1] = used + count, till, count
    end
  end
  return used, untils, tokens
end
