-- id, document
local id, document = ARGV[4], ARGV[5]
local key = prefix .. 'variant:' .. id
if redis.call('HGET', key, 'document') == document then
  return 0
end
redis.call('HSET', key, 'document', document)
redis.call('SADD', prefix .. 'variants', id)
emit('variant_published', id, document, '')
save()
return 1
