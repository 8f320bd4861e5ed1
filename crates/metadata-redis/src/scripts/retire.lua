-- id
local id = ARGV[4]
local application = redis.call('HGET', prefix .. 'variant:' .. id, 'application')
if not application then
  return 0
end
redis.call('DEL', prefix .. 'variant:' .. id)
redis.call('SREM', prefix .. 'variants', id)
redis.call('ZREM', prefix .. 'application:' .. application .. ':accuracy', id)
redis.call('ZREM', prefix .. 'application:' .. application .. ':latency', id)
emit('variant_retired', id, '', '')
save()
return 1
