-- worker; answers its record and its lease
local worker = ARGV[4]
local key = prefix .. 'worker:' .. worker
local known = redis.call('HMGET', key, 'record', 'lease', 'leaving')
if not known[1] then
  return false
end
if known[3] ~= '1' then
  redis.call('HSET', key, 'leaving', '1')
  worker_changed(worker, known[1], known[2], '1')
  save()
end
return { known[1], known[2] }
