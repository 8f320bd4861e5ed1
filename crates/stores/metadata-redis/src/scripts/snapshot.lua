-- Which parts: any of v(ariants), i(nstances), w(orkers), l(eaders), r(ecords of leaders). Instances
-- need workers: theirs is the lease.
local wanted = ARGV[4]
local variants, instances, workers, leaders, records = {}, {}, {}, {}, {}
if string.find(wanted, 'v') then
  for index, id in ipairs(redis.call('SMEMBERS', prefix .. 'variants')) do
    variants[index] = redis.call('HGET', prefix .. 'variant:' .. id, 'document')
  end
end
if string.find(wanted, 'i') then
  for index, name in ipairs(redis.call('SMEMBERS', prefix .. 'instances')) do
    local record = redis.call('HMGET', prefix .. 'instance:' .. name,
      'application', 'state', 'version', 'since', 'load', 'reason')
    record[7] = name
    instances[index] = record
  end
end
if string.find(wanted, 'w') then
  for index, id in ipairs(redis.call('ZRANGE', prefix .. 'workers', 0, -1)) do
    local worker = redis.call('HMGET', prefix .. 'worker:' .. id, 'record', 'lease', 'leaving')
    workers[index] = { id, worker[1], worker[2], worker[3] }
  end
end
if string.find(wanted, 'l') then
  for index, role in ipairs(redis.call('SMEMBERS', prefix .. 'leaders')) do
    leaders[index] = redis.call('HMGET', prefix .. 'leader:' .. role, 'document', 'token', 'lease')
  end
end
if string.find(wanted, 'r') then
  for index, record in ipairs({ 'wanted', 'demand' }) do
    records[index] = redis.call('HMGET', prefix .. record, 'content', 'token')
  end
end
local life = redis.call('HGET', state, 'life')
return { text(now), text(cursor), life, variants, instances, workers, leaders, records }
