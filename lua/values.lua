-- The values of keys, whatever the algorithm. Put before every script that touches them.
--
-- Each algorithm stores a text of a form of its own, which its file explains; fixed and sliding windows share one. A
-- key that is absent has all of its tokens. A limit may have had another algorithm a moment ago: a value of another form
-- counts as absent, and the next grant overwrites it. Debts and refunds leave it as it is while tokens of it are out,
-- since they belong to one algorithm as well.

local MAX_TICKS = 4503599627370496
local FOREIGN = "TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?"

-- The forms of values.
local BUCKET = '^(%d+):(%d+):(%d+):(%d+):(%d+)$'
local WINDOW = '^%d+=%d+[%d=,]*$'

-- Whether tokens are out by a value that has the form of another algorithm. Nil: it has that of none.
local function is_out_by_another(value, now)
  local tat, frac = string.match(value, BUCKET)
  if tat then return tonumber(tat) > now or tonumber(tat) == now and tonumber(frac) > 0 end
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

-- The functions of each algorithm, by the letter that stands for it in ARGV.
local algorithms = {}
