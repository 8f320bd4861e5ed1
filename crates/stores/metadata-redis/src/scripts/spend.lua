-- A quota. KEYS[1]: it; ARGV: the caller's time in ms or '', units at most, the limit, the window's
-- length in ms.
local time = redis.call('TIME')
local servers = ARGV[1] == ''
local now = servers and time[1] * 1000 + math.floor(time[2] / 1000) or tonumber(ARGV[1])
local most, limit, length = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local window = math.floor(now / length)
local quota = redis.call('HMGET', KEYS[1], 'window', 'spent')
local spent = tonumber(quota[2] or 0)
if tonumber(quota[1] or -1) < window then
  spent = 0
else
  window = tonumber(quota[1])
end
local granted = math.max(math.min(limit - spent, most), 0)
redis.call('HSET', KEYS[1], 'window', string.format('%.0f', window),
  'spent', string.format('%.0f', spent + granted))
if servers then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', (window + 1) * length - now + 1000))
end
return granted
