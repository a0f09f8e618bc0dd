-- Reads one bucket or window, and grants tokens to it if asked to. Put last, behind the algorithms.
--
-- KEYS   [1] the bucket or window.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] tokens to grant:
--        0 only reads, -1 grants all. [3] the letter of its algorithm, then its four numbers as for take.lua.
-- Reply  integers: 1, Redis time in microseconds, then its state before and after, each a count and as many numbers,
--        which the algorithm's file explains. Or -1 and the time: past the deadline, or outside the fixed window that
--        was sent.
--
-- Never: writes when it only reads, makes a key have more than all its tokens, reads a caller's clock for the
-- arithmetic, leaves a key without expiry, or puts a key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local algorithm = algorithms[ARGV[3]]
local limit = algorithm.limit(tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
local before, after = algorithm.grant(KEYS[1], now, limit, tonumber(ARGV[2]))
if before == false then return { -1, now } end
if not before then return redis.error_reply(FOREIGN) end

local reply = { 1, now, #before }
for _, number in ipairs(before) do reply[#reply + 1] = number end
reply[#reply + 1] = #after
for _, number in ipairs(after) do reply[#reply + 1] = number end
return reply
