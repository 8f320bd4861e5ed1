-- id, application, document, scores of accuracy and latency
local id, application, document = ARGV[4], ARGV[5], ARGV[6]
local key = prefix .. 'variant:' .. id
local known = redis.call('HMGET', key, 'document', 'application')
if known[1] == document then
  return 0
end
if known[2] then
  redis.call('ZREM', prefix .. 'application:' .. known[2] .. ':accuracy', id)
  redis.call('ZREM', prefix .. 'application:' .. known[2] .. ':latency', id)
end
redis.call('HSET', key, 'document', document, 'application', application)
redis.call('SADD', prefix .. 'variants', id)
redis.call('ZADD', prefix .. 'application:' .. application .. ':accuracy', ARGV[7], id)
redis.call('ZADD', prefix .. 'application:' .. application .. ':latency', ARGV[8], id)
emit('variant_published', id, document, '')
save()
return 1
