-- KEYS[1]: the bucket; ARGV: tokens, tokens that it holds
local tokens = redis.call('HGET', KEYS[1], 'tokens')
if tokens then
  local sum = math.min(tokens + ARGV[1], tonumber(ARGV[2]))
  redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', sum))
end
return 1
