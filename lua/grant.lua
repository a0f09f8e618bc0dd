-- Looks at one bucket or window, and gives tokens back to it if asked to. Put last, behind the algorithms.
--
-- KEYS   [1] the bucket or window.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] tokens to give back:
--        0 only looks, -1 gives all back. [3] the letter of its algorithm, then its four numbers as for take.lua.
-- Reply  integers: 1 (-1: past the deadline, or not the time that a fixed window was told for, and nothing else but the
--        time), Redis time in microseconds, then its state before and after, each a count and as many numbers, which the
--        algorithm's file tells.
--
-- Never: writes when it only looks, makes a key have more than all its tokens, reads a caller's clock for the arithmetic,
-- leaves a key without expiry, or puts a key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local before, after = algorithms[ARGV[3]].give(KEYS[1], now, 4, tonumber(ARGV[2]))
if before == false then return { -1, now } end
if not before then return redis.error_reply(FOREIGN) end

local reply = { 1, now, #before }
for _, number in ipairs(before) do reply[#reply + 1] = number end
reply[#reply + 1] = #after
for _, number in ipairs(after) do reply[#reply + 1] = number end
return reply
