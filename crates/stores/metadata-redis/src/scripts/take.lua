-- A token bucket. KEYS[1]: it; ARGV: the caller's time in ms or '', tokens at most, tokens that come
-- in a second, tokens that it holds. A bucket that is not there is full.
local time = redis.call('TIME')
local servers = ARGV[1] == ''
local now = servers and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(ARGV[1])
local most, rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1] or burst), tonumber(bucket[2] or now)
tokens = math.min(tokens + math.max(now - at, 0) / 1000 * rate, burst)
local granted = math.max(math.min(math.floor(tokens), most), 0)
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens - granted),
  'at', string.format('%.0f', math.max(at, now)))
if servers then
  -- By then it is full again.
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.min(burst / rate, 1e9) * 1000 + 1000))
end
return granted
