-- id
local id = ARGV[4]
if redis.call('DEL', prefix .. 'variant:' .. id) == 0 then
  return 0
end
redis.call('SREM', prefix .. 'variants', id)
emit('variant_retired', id, '', '')
save()
return 1
